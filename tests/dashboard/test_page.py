"""The page in a real browser: everything a person would try, and not one complaint on the console."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser
from tests.dashboard.conftest import serving
from tests.dashboard.kit import write_run

pytestmark = pytest.mark.slow
LOOKS = {"desktop": (1280, 900), "phone": (390, 844)}


def until(browser: Browser, script: str, *arguments: Any) -> Any:
    """What `script` returns, as soon as that is something."""
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        found = browser.run(script, *arguments)
        if found:
            return found
        time.sleep(0.05)
    page = browser.run("return document.body.innerText")
    raise AssertionError(f"{script} never came true on this page: {page}")


def show(browser: Browser, server: str, where: str, size: tuple[int, int] = (1360, 900)) -> None:
    browser.resize(*size, phone=size[0] < 500)
    browser.open(server + where)
    until(browser, "return document.querySelector('main[aria-busy=false]')")


def show_map(browser: Browser, server: str, run: str) -> None:
    show(browser, server, f"#/run/{run}")
    until(browser, "return document.querySelector('.map-box canvas[aria-label]')")


def words(browser: Browser) -> str:
    text: str = browser.run("return document.querySelector('main').innerText")
    return text


def picture(browser: Browser) -> str:
    """The pixels of the map."""
    data: str = browser.run("return document.querySelector('.map-box canvas').toDataURL()")
    return data


def test_the_list_leads_to_a_run(browser: Browser, server: str) -> None:
    show(browser, server, "")
    until(browser, "return document.querySelectorAll('.runs tbody tr').length === 4")
    assert "damaged" in words(browser) and "result.json" in words(browser)
    browser.find("tr.arm button")[0].click()
    browser.run("document.querySelector('.runs a.name[href$=first]').click()")
    until(browser, "return document.querySelector('.map-box canvas[aria-label]')")
    assert browser.run("return document.title") == "first · Plexus"
    assert browser.complaints() == []


LISTED = "return [...document.querySelectorAll('.runs tbody .name')].map((each) => each.textContent)"


def choose(browser: Browser, label: str, value: str) -> None:
    browser.run(
        """const box = document.querySelector(`[aria-label="${arguments[0]}"]`);
        box.value = arguments[1];
        box.dispatchEvent(new Event(box.tagName === "SELECT" ? "change" : "input"));""",
        label,
        value,
    )


def test_the_list_has_seeds_together_and_is_searched_filtered_and_sorted(
    browser: Browser, server: str
) -> None:
    show(browser, server, "")
    choose(browser, "Sort", "name")
    until(browser, f"{LISTED}.length === 4")
    assert browser.run(LISTED) == ["▸ first", "damaged", "folder/second", "longer"]
    row = browser.run("return document.querySelector('tr.arm').innerText")
    assert "90.0 ± 0.0 %" in row and "3 runs" in row and "2 finished" in row
    browser.find("tr.arm button")[0].click()
    assert browser.run(LISTED)[:4] == ["▾ first", "seed 1", "seed 1", "seed 2"]
    browser.find("tr.arm button")[0].click()
    choose(browser, "Search runs", "SEED 2 folder")
    assert browser.run(LISTED) == ["folder/second"]
    choose(browser, "Search runs", "nothing like it")
    assert "No run matches." in words(browser)
    choose(browser, "Search runs", "")
    choose(browser, "Tag", "kept")
    assert browser.run(LISTED) == ["longer"] and "#kept · for later" in words(browser)
    choose(browser, "Tag", "")
    choose(browser, "State", "damaged")
    assert browser.run(LISTED) == ["damaged"]
    choose(browser, "State", "")
    browser.find("label.check input")[0].click()
    assert browser.run(LISTED) == ["again", "damaged", "first", "folder/second", "growing", "longer"]
    assert browser.complaints() == []


def test_a_single_run_opens_at_once(browser: Browser, tmp_path: Path) -> None:
    write_run(tmp_path / "only" / "one", until_s=600)
    with serving(tmp_path / "only") as address:
        browser.open(address)
        until(browser, "return document.querySelector('.map-box canvas[aria-label]')")
        assert browser.run("return document.title") == "one · Plexus"
        assert browser.complaints() == []


def test_a_finished_run_shows_all_its_pictures(browser: Browser, server: str) -> None:
    show_map(browser, server, "first")
    text = words(browser)
    for heading in (
        "Test accuracy",
        "Nodes online",
        "Where a round’s time goes",
        "Messages by type",
        "Nodes",
    ):
        assert heading in text
    assert "90.0 %" in text and "finished" in text
    until(browser, "return document.querySelectorAll('.uplot canvas').length === 4")
    assert browser.run("return document.querySelectorAll('.moment li').length") > 3
    assert browser.complaints() == []


def test_faults_are_shaded_and_named(browser: Browser, server: str) -> None:
    named = "return [...document.querySelectorAll('.keys.faults li')].map((each) => each.textContent)"
    show_map(browser, server, "first")
    until(browser, "return document.querySelectorAll('.uplot canvas').length === 4")
    assert browser.run(named) == []
    assert browser.run("return document.querySelector('.spans').hidden")
    show_map(browser, server, "folder%2Fsecond")
    until(browser, "return document.querySelectorAll('.uplot canvas').length === 4")
    words_of_both = ["partition of node 3", "crash of 10 % of the nodes"]
    assert browser.run(named) == 4 * words_of_both, "all charts are over time"
    titles = browser.run("return [...document.querySelectorAll('.spans span')].map((each) => each.title)")
    assert titles == [
        "partition of node 3, 0:15:00 to 0:30:00",
        "crash of 10 % of the nodes, 0:24:00 to 0:36:00",
    ]
    left, width = browser.run(
        "const { style } = document.querySelector('.spans span'); return [style.left, style.width]"
    )
    assert (round(float(left[:-1])), round(float(width[:-1]))) == (25, 25), "to the scale of the slider"
    browser.run(
        """const box = document.querySelector("select[aria-label='Horizontal axis']");
        box.value = "round"; box.dispatchEvent(new Event("change"));"""
    )
    until(browser, "return document.querySelectorAll('.keys.faults li').length === 6")
    assert browser.complaints() == []


def test_the_map_tells_how_good_the_model_is_and_what_goes_wrong(browser: Browser, server: str) -> None:
    show_map(browser, server, "first")
    legend = "return document.querySelector('.map-legend').innerText"
    assert "attacker" not in browser.run(legend) and "fault" not in browser.run(legend)
    show_map(browser, server, "folder%2Fsecond")
    assert "attacker" in browser.run(legend) and "hit by a fault" in browser.run(legend)
    panel = "return document.querySelector('.moment').innerText"
    before = browser.run(panel)
    browser.run(
        """const answer = window.fetch;
        const released = new Promise((go) => { window.answers = go; });
        window.fetch = (...asked) => released.then(() => answer(...asked));
        const slider = document.querySelector(".player input");
        slider.value = 1600; slider.dispatchEvent(new Event("input"));"""
    )
    assert browser.run(panel) == before, "nothing is told of a moment that nothing is known of"
    browser.run("window.answers()")
    until(browser, f"{panel}.includes('partition: 1 node')")
    moment = browser.run(panel)
    _, accuracy, of_round, *_ = [line for line in moment.splitlines() if line]
    assert "crash: 3 nodes" in moment
    assert accuracy.endswith(" %") and of_round.startswith("of round ")
    assert "begun with " in moment
    assert "4 hit by a fault." in browser.run("return document.querySelector('.map-box canvas').ariaLabel")
    assert browser.complaints() == []


@pytest.mark.parametrize("axis", ["sent", "training", "round", "time"])
def test_the_metric_over_other_axes(browser: Browser, server: str, axis: str) -> None:
    show_map(browser, server, "first")
    browser.run(
        """const box = document.querySelector("select[aria-label='Horizontal axis']");
        box.value = arguments[0]; box.dispatchEvent(new Event("change"));""",
        axis,
    )
    label = {"sent": "sent by", "training": "hours of", "round": "round", "time": "simulated"}[axis]
    until(
        browser,
        "return document.querySelector('.u-legend .u-label').textContent.startsWith(arguments[0])",
        label,
    )
    assert browser.complaints() == []


def test_the_slider_moves_the_moment(browser: Browser, server: str) -> None:
    show_map(browser, server, "first")
    before, round_before = picture(browser), words(browser)
    browser.run(
        """const slider = document.querySelector("input[type=range]");
        slider.value = 3000; slider.dispatchEvent(new Event("input"));"""
    )
    until(browser, "return document.querySelector('.when').textContent.startsWith('0:50:00')")
    until(browser, "return document.querySelector('.map-box canvas').toDataURL() !== arguments[0]", before)
    assert words(browser) != round_before
    value = "return document.querySelector('input[type=range]').getAttribute('aria-valuetext')"
    assert browser.run(value) == "0:50:00"
    assert browser.complaints() == []


def test_the_keyboard_is_enough(browser: Browser, server: str) -> None:
    from selenium.webdriver.common.keys import Keys

    show_map(browser, server, "first")
    slider = browser.find("input[type=range]")[0]
    when = browser.run("return document.querySelector('.when').textContent")
    slider.send_keys(Keys.ARROW_RIGHT, Keys.PAGE_UP)
    assert browser.run("return document.querySelector('.when').textContent") != when
    browser.find("body")[0].send_keys(Keys.SPACE)
    until(browser, "return document.querySelector('button.play').getAttribute('aria-label') === 'Pause'")
    browser.find("body")[0].send_keys(Keys.SPACE)
    until(browser, "return document.querySelector('button.play').getAttribute('aria-label') === 'Play'")
    unnamed = browser.run(
        """return [...document.querySelectorAll("button, a, input, select")].filter((each) =>
        !each.textContent.trim() && !each.getAttribute("aria-label")).map((each) => each.outerHTML)"""
    )
    assert unnamed == []
    assert browser.complaints() == []


def test_play_lets_time_pass_on_the_map(browser: Browser, server: str) -> None:
    show_map(browser, server, "first")
    before = picture(browser)
    began = browser.run("return Number(document.querySelector('input[type=range]').value)")
    browser.find("button.play")[0].click()
    until(
        browser, "return Number(document.querySelector('input[type=range]').value) > arguments[0] + 60", began
    )
    assert "replaying " in words(browser) and " of 59 min" in words(browser)
    browser.find("button.play")[0].click()
    assert "replaying" not in words(browser)
    assert picture(browser) != before
    assert browser.complaints() == []


def test_the_theme_follows_the_system_and_the_button(browser: Browser, server: str) -> None:
    browser.prefer("dark")
    show_map(browser, server, "first")
    theme = "return document.documentElement.dataset.theme"
    background = "return getComputedStyle(document.body).backgroundColor"
    assert browser.run(theme) == "dark"
    dark = browser.run(background), picture(browser)
    browser.find("#theme")[0].click()
    assert browser.run(theme) == "light"
    assert browser.run(background) != dark[0] and picture(browser) != dark[1]
    browser.driver.refresh()
    assert until(browser, theme) == "light"
    assert browser.complaints() == []


def test_a_node_has_a_page(browser: Browser, server: str) -> None:
    show_map(browser, server, "first")
    browser.run("document.querySelector('.moment li a').click()")
    until(browser, "return document.querySelector('main h1')?.textContent.startsWith('Node ')")
    text = words(browser)
    for part in ("At this moment", "The device", "Its view", "What it did", "One training"):
        assert part in text
    assert browser.complaints() == []


def test_a_node_can_be_clicked_on_the_map(browser: Browser, server: str) -> None:
    show_map(browser, server, "first")
    # Whole pixels: a click knows no others, and may be just beside where the pointer was.
    where = browser.run(
        """const canvas = document.querySelector(".map-box canvas"), done = arguments;
        const box = canvas.getBoundingClientRect();
        return [box.left, box.top, box.width, box.height].map(Math.round)"""
    )
    found = browser.run(
        """const [left, top, width, height] = arguments[0];
        const canvas = document.querySelector(".map-box canvas");
        for (let y = 0; y < height; y += 5) for (let x = 0; x < width; x += 5) {
          canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: left + x, clientY: top + y }));
          if (!document.querySelector(".tip").hidden) {
            const text = document.querySelector(".tip").textContent;
            canvas.dispatchEvent(new MouseEvent("click", { clientX: left + x, clientY: top + y }));
            return text;
          }
        }""",
        where,
    )
    assert "·" in found
    until(browser, "return document.querySelector('main h1')?.textContent.startsWith('Node ')")
    assert browser.run("return document.querySelector('main h1').textContent.slice(5)") in found
    assert browser.complaints() == []


def test_a_finished_run_counts_all_of_its_messages(browser: Browser, server: str, runs: Path) -> None:
    show(browser, server, "#/run/first")
    models = json.loads((runs / "first" / "result.json").read_text())["messages"]["model"]["count"]
    script = "return [...document.querySelectorAll('td')].find((td) => td.textContent === 'model')"
    found = until(browser, f"{script}?.nextSibling.textContent")
    assert found == f"{models:,}"


def test_arms_are_judged_by_the_rules_of_compare(browser: Browser, server: str) -> None:
    show(browser, server, "#/compare?run=first&run=again&run=folder%2Fsecond")
    headings = "return [...document.querySelectorAll('.side thead a')].map((each) => each.textContent)"
    assert browser.run(headings)[:2] == [
        "s = 5, no faults, attackers default",
        "s = 8, partition and crash, attackers flip by [4, 9]",
    ]
    text = words(browser)
    assert "Digits, 30 nodes, churn" in text and "End accuracy" in text and "3 runs compared" in text
    assert "The best accuracy at the end is that of" in text and "without an interval" in text
    assert "Mean over seeds ± its 95 % interval" in text and "means over seeds" in text
    show(browser, server, "#/compare?run=first&run=again&run=damaged")
    text = words(browser)
    assert "The specs are the same, but for the seed." in text
    assert "damaged: " in browser.find(".card.error")[0].text
    show(browser, server, "#/compare?run=first&run=longer")
    text = words(browser)
    assert "Digits, 30 nodes, churn, hours = 1" in text and "Digits, 30 nodes, churn, hours = 2" in text
    assert "is that of" not in text, "nobody is ranked across hours"
    found = browser.run(
        """
        const { meanOf } = await import("/js/compare.js");
        return [...meanOf([{ x: [0, 2], y: [0, 2] }, { x: [1, 3], y: [3, 3] }])];
        """
    )
    assert found == [[1, 2], [2, 2.5]]
    assert browser.complaints() == []


def test_two_runs_are_compared(browser: Browser, server: str) -> None:
    show(browser, server, "")
    until(browser, "return document.querySelectorAll('.runs input').length === 3")
    browser.run("document.querySelector('label.check input').click()")
    for name in ("first", "folder/second"):
        browser.run("document.querySelector(`input[aria-label='Compare ${arguments[0]}']`).click()", name)
    browser.find("a.primary")[0].click()
    until(browser, "return document.querySelector('main h1')?.textContent === '2 runs compared'")
    text = words(browser)
    assert "protocol.sample_size" in text and "How the specs differ" in text
    assert "Sent by all nodes" in text
    until(browser, "return document.querySelectorAll('.uplot canvas').length === 2")
    assert browser.complaints() == []


@pytest.fixture
def under_way(runs: Path) -> Iterator[Path]:
    """Where a run is about to begin; gone afterwards, for others count the runs."""
    yield runs / "under-way"
    shutil.rmtree(runs / "under-way", ignore_errors=True)


def test_a_run_that_goes_on_grows_on_the_page(
    browser: Browser, server: str, under_way: Path, tmp_path: Path
) -> None:
    browser.open(f"{server}#/run/under-way")
    until(browser, "return document.querySelector('main').innerText.includes('Waiting for the run')")
    write_run(under_way, until_s=600, finish=False)
    until(browser, "return document.querySelector('.pill.running')")
    until(browser, "return document.querySelector('.map-box canvas[aria-label]')")
    # Being asked for what is not there yet is the one thing a browser complains of by itself.
    assert [text for text in browser.complaints() if "404" not in text] == []
    end = browser.run("return Number(document.querySelector('input[type=range]').max)")
    longer = tmp_path / "under-way"
    write_run(longer, until_s=2400, finish=False)
    for table in longer.glob("*.csv"):
        old = (under_way / table.name).stat().st_size if (under_way / table.name).exists() else 0
        with (under_way / table.name).open("ab") as file:
            file.write(table.read_bytes()[old:])
    until(browser, "return Number(document.querySelector('input[type=range]').max) > arguments[0] + 600", end)
    assert browser.complaints() == []


CUT_OFF = """
const read = "table .name, table td, .side td span, .side th a, .head *, .compare-bar *";
return [...document.querySelectorAll(read)].filter((each) => {
  const box = each.getBoundingClientRect();
  return box.width && (box.right > document.documentElement.clientWidth + 1 || box.left < 0);
}).map((each) => each.textContent)"""


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    "page", ["", "#/run/first", "#/run/first/node/3", "#/compare?run=first&run=folder%2Fsecond"]
)
def test_every_page_fits_its_window(browser: Browser, server: str, look: str, page: str) -> None:
    show(browser, server, page, LOOKS[look])
    until(browser, "return document.querySelector('main .card')")
    width = browser.run("return document.documentElement.scrollWidth")
    assert width <= LOOKS[look][0]
    assert browser.run(CUT_OFF) == [], "names and numbers can be read without scrolling sideways"
    assert browser.complaints() == []


def test_what_is_not_there_is_said(browser: Browser, server: str) -> None:
    show(browser, server, "#/run/damaged")
    until(browser, "return document.querySelector('[role=alert]')")
    assert "result.json" in words(browser)
    show(browser, server, "#/compare?run=first")
    until(browser, "return document.querySelector('[role=alert]')")
    assert "Choose two runs" in words(browser)
