// The list of everything there is to look at: runs of one setting together, to be searched, filtered and sorted.
import * as api from "./api.js";
import { h, replace, colour, select } from "./dom.js";
import * as f from "./format.js";

const EVERY_MS = 4000;
const FILTERS = { status: "State", protocol: "Protocol", task: "Task", tag: "Tag" };
const started = (run) => (typeof run.started === "number" ? run.started * 1000 : Date.parse(run.started || 0) || 0);
const worth = (run) => (run.metric && run.metric.best !== null ? (run.metric.higher_is_better ? 1 : -1) * run.metric.best : -Infinity);
const SORTS = {
  newest: ["newest first", (a, b) => (b.status === "running") - (a.status === "running") || started(b) - started(a)],
  name: ["by name", (a, b) => title(a).localeCompare(title(b), "en", { numeric: true })],
  best: ["best first", (a, b) => worth(b) - worth(a)],
  rounds: ["most rounds first", (a, b) => (b.rounds || 0) - (a.rounds || 0)],
};
// What somebody chose, kept while other pages are looked at.
const view = { search: "", sort: "newest", isGrouped: true, open: new Set(), chosen: new Set(), only: {} };

export async function showRuns({ main, place, isCurrent }) {
  place("Runs");
  const body = h("tbody"), where = h("p", { class: "meta" }), go = h("a", { class: "primary" }), tools = h("div", { class: "tools" });
  const bar = h("div", { class: "card compare-bar" }, h("span", {}), go);
  const table = h("div", { class: "card" }, h("div", { class: "scroll" }, h("table", { class: "runs" },
    h("thead", {}, h("tr", {}, h("th", {}, h("span", { class: "visually-hidden" }, "Compare")), h("th", {}, "Run"), h("th", {}, "State"),
      h("th", { class: "number" }, "Metric"), h("th", { class: "wide" }, h("span", { class: "visually-hidden" }, "Its course")),
      h("th", { class: "number wide" }, "Rounds"), h("th", { class: "number wide" }, "Time"), h("th", { class: "wide" }, "Started"))), body)));
  let seen = "", found = { runs: [], best: {} };

  function showChosen() {
    const count = view.chosen.size;
    bar.hidden = count === 0;
    bar.firstChild.textContent = count < 2 ? "Choose another run to compare with" : `${count} runs chosen`;
    go.textContent = "Compare";
    go.hidden = count < 2;
    go.setAttribute("href", `#/compare?${[...view.chosen].map((id) => `run=${encodeURIComponent(id)}`).join("&")}`);
  }

  function show() {
    const runs = found.runs.filter(isWanted).sort(SORTS[view.sort][1]);
    replace(body, arms(runs).flatMap((group) => rows(group, found.best, { show, showChosen })));
    if (!runs.length) replace(body, h("tr", {}, h("td", { colspan: 8, class: "empty" }, "No run matches.")));
    for (const canvas of body.querySelectorAll("canvas")) spark(canvas);
    showChosen();
  }

  async function refresh() {
    const answer = await api.runs();
    if (!isCurrent()) return;
    const text = JSON.stringify(answer);
    if (text === seen) return;
    seen = text;
    found = answer;
    where.textContent = found.root ? `${found.runs.length} in ${found.root}` : "live nodes, by their addresses";
    if (!found.runs.length) {
      replace(main, head, h("div", { class: "card empty" }, "No run here yet. ", h("code", {}, "plexus run quickstart"), " makes one."));
      return;
    }
    if (found.runs.length === 1 && !found.runs[0].error) {
      window.location.replace(`#/run/${encodeURIComponent(found.runs[0].id)}`);
      return;
    }
    for (const id of view.chosen) if (!found.runs.some((run) => run.id === id)) view.chosen.delete(id);
    if (!tools.contains(document.activeElement)) replace(tools, controls(found.runs, show));
    if (!table.isConnected) replace(main, head, tools, table, bar);
    show();
  }

  const head = h("div", { class: "head" }, h("h1", {}, "Runs"), where);
  await refresh();
  const redraw = () => body.querySelectorAll("canvas").forEach(spark);
  document.addEventListener("theme", redraw);
  const timer = setInterval(() => refresh().catch(() => {}), EVERY_MS);
  return () => { clearInterval(timer); document.removeEventListener("theme", redraw); };
}

const values = (run, key) => (key === "tag" ? run.tags || [] : [run.error ? (key === "status" ? "damaged" : null) : run[key]]).filter(Boolean);

function controls(runs, show) {
  const box = h("input", { type: "search", placeholder: "Search", "aria-label": "Search runs", value: view.search, oninput: () => { view.search = box.value; show(); } });
  const filters = Object.entries(FILTERS).map(([key, name]) => {
    const known = [...new Set(runs.flatMap((run) => values(run, key)))].sort();
    if (!known.includes(view.only[key])) view.only[key] = "";
    if (known.length < (key === "tag" ? 1 : 2)) return null;
    return select(name, [["", `${name}: all`], ...known.map((each) => [each, f.words[each] || each])], view.only[key], (value) => { view.only[key] = value; show(); });
  });
  const sort = select("Sort", Object.entries(SORTS).map(([key, [text]]) => [key, text]), view.sort, (value) => { view.sort = value; show(); });
  const seeds = h("input", { type: "checkbox", onchange: () => { view.isGrouped = seeds.checked; show(); } });
  seeds.checked = view.isGrouped;
  return [box, filters, sort, h("label", { class: "check" }, seeds, "Seeds together")];
}

function isWanted(run) {
  if (Object.keys(FILTERS).some((key) => view.only[key] && !values(run, key).includes(view.only[key]))) return false;
  const told = [run.id, run.name, about(run), run.error, run.status].join(" ").toLowerCase();
  return view.search.toLowerCase().split(/\s+/).every((word) => told.includes(word));
}

// Runs of one setting, in the order in which the first of each comes.
function arms(runs) {
  const groups = new Map();
  for (const run of runs) {
    const key = view.isGrouped && run.arm ? run.arm : run.id;
    groups.set(key, [...(groups.get(key) || []), run]);
  }
  return [...groups.values()];
}

// A directory that is called by a digest tells nobody anything: then by what sets it apart.
function title(run) {
  const isDigest = /-[0-9a-f]{16}(\.\d+)?$/.test(run.id);
  return isDigest ? [run.name, ...(run.differs || [])].join(" · ") : run.id;
}
const seedOf = (run) => (run.seed === null || run.seed === undefined ? null : `seed ${run.seed}`);
const noted = (run) => [...(run.tags || []).map((tag) => `#${tag}`), run.note].filter(Boolean);
const about = (run, told = []) => [run.kind === "live" ? "live" : null, run.protocol, run.task, `${f.whole(run.nodes)} nodes`, ...(run.differs || []), seedOf(run), ...noted(run)]
  .filter((each) => each && !told.includes(each)).join(" · ");

function rows(group, best, changed) {
  if (group.length === 1) return [row(group[0], title(group[0]), changed)];
  const [first] = group, key = first.arm, isOpen = view.open.has(key);
  const toggle = h("button", { type: "button", class: "name", "aria-expanded": String(isOpen), onclick: () => { if (isOpen) view.open.delete(key); else view.open.add(key); changed.show(); } },
    `${isOpen ? "▾" : "▸"} ${[first.name, ...(first.differs || [])].join(" · ")}`);
  const states = [...new Set(group.map((run) => run.status))];
  const state = states.map((each) => h("span", { class: `pill ${each}` }, states.length > 1 ? `${group.filter((run) => run.status === each).length} ${f.words[each]}` : f.words[each]));
  const mean = best[key];
  const line = cells(first, choice(group, `Compare ${first.name}`, changed.showChosen),
    [toggle, h("span", { class: "sub" }, [`${group.length} runs`, about({ ...first, seed: null }, first.differs)].join(" · "))], state,
    [h("b", {}, mean ? mean.text : "–"), h("span", { class: "sub" }, mean ? "mean of the best, 95 %" : "")], "arm");
  const bySeed = [...group].sort((a, b) => a.seed - b.seed);
  return isOpen ? [line, ...bySeed.map((run) => row(run, seedOf(run) || run.id, changed, "seed"))] : [line];
}

function row(run, name, changed, kind = "") {
  if (run.error) {
    return h("tr", {}, h("td", {}), h("td", {}, h("span", { class: "name" }, run.name), h("span", { class: "sub" }, run.error)), h("td", {}, h("span", { class: "pill damaged" }, "damaged")), h("td", { colspan: 5 }));
  }
  const metric = run.metric || {};
  return cells(run, choice([run], `Compare ${run.id}`, changed.showChosen),
    [h("a", { class: "name", href: `#/run/${encodeURIComponent(run.id)}` }, name), h("span", { class: "sub" }, kind ? [run.id, ...noted(run)].join(" · ") : about(run, name === run.id ? [] : run.differs))],
    h("span", { class: `pill ${run.status}` }, f.words[run.status] || run.status),
    [h("b", {}, f.metric(metric.name, metric.best)), h("span", { class: "sub" }, metric.name ? `best ${f.metricName(metric.name)}` : "")], kind);
}

function cells(run, box, name, state, metric, kind) {
  const canvas = h("canvas", { role: "img", "aria-label": `${f.metricName(run.metric.name)} over time` });
  canvas.values = run.spark || [];
  const share = run.until_s ? ` of ${f.hours(run.until_s)}` : "";
  return h("tr", { class: kind }, h("td", {}, box), h("td", {}, name), h("td", {}, state), h("td", { class: "number" }, metric), h("td", { class: "wide" }, canvas),
    h("td", { class: "number wide" }, f.whole(run.rounds)), h("td", { class: "number wide" }, f.hours(run.reached_s) + share), h("td", { class: "wide" }, f.date(run.started)));
}

function choice(group, label, changed) {
  const box = h("input", { type: "checkbox", "aria-label": label, onchange: () => {
    for (const run of group) if (box.checked) view.chosen.add(run.id); else view.chosen.delete(run.id);
    changed();
  } });
  box.checked = group.every((run) => view.chosen.has(run.id));
  return box;
}

function spark(canvas) {
  const values = canvas.values.filter((v) => v !== null);
  if (values.length < 2) return;
  const ratio = window.devicePixelRatio || 1, width = 120, height = 30;
  canvas.width = width * ratio; canvas.height = height * ratio;
  const draw = canvas.getContext("2d");
  draw.scale(ratio, ratio);
  const low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
  draw.beginPath();
  values.forEach((v, i) => draw.lineTo(2 + (i / (values.length - 1)) * (width - 4), height - 3 - ((v - low) / span) * (height - 6)));
  draw.strokeStyle = colour("accent"); draw.lineWidth = 1.6; draw.lineJoin = "round"; draw.stroke();
}
