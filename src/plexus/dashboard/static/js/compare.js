// Several arms on the same axes, who is better by the rules of `plexus compare`, and how their specs differ.
import * as api from "./api.js";
import { card, h, replace, select } from "./dom.js";
import { lines } from "./charts.js";
import { along, AXES, timeUnit } from "./run.js";
import { PARTS } from "./rounds.js";
import * as f from "./format.js";

const MOST_ARMS = 6, MOST_RUNS = 60;
const NOT_THE_SETTING = ["seed", "name"];

export async function showCompare({ main, place, isCurrent }, ids) {
  place("Compare", ["compare", null]);
  if (ids.length < 2) throw new Error("Choose two runs or more in the list to compare them.");
  const answers = await Promise.all(ids.slice(0, MOST_RUNS).map((id) => api.run(id).catch((error) => ({ error, id }))));
  const damaged = answers.filter((each) => each.error), told = new Map(answers.filter((each) => !each.error).map(({ body }) => [body.id, body]));
  if (told.size < 2) throw damaged[0].error;
  const { arms: named, settings } = await api.compared([...told.keys()]);
  if (!isCurrent()) return null;
  const all = named.map(({ label, runs }) => ({ label, runs: runs.map((id) => told.get(id)) }));
  const arms = all.slice(0, MOST_ARMS), runs = [...told.values()];
  for (const arm of arms) {
    arm.setting = flat(arm.runs[0].spec);
    for (const key of NOT_THE_SETTING) delete arm.setting[key];
  }
  const longest = runs.reduce((a, b) => ((b.until_s || b.reached_s) > (a.until_s || a.reached_s) ? b : a));
  const unit = timeUnit({ ...longest, kind: runs.some((run) => run.kind === "live") ? "live" : longest.kind });
  const charts = [curves(arms, unit), online(arms, unit)];
  const more = all.length > MOST_ARMS ? `drawn are the first ${MOST_ARMS} of ${all.length} settings` : null;
  replace(main, h("div", { class: "stack" },
    h("div", { class: "head" }, h("h1", {}, `${runs.length} runs compared`), more ? h("p", { class: "meta" }, more) : null),
    damaged.map((each) => h("p", { class: "card error" }, `${each.id}: ${each.error.message}`)),
    charts[0].element, settings.map((setting) => judged(setting, arms)), h("div", { class: "two" }, charts[1].element, phases(arms)), differences(arms)));
  return () => charts.forEach((chart) => chart.close());
}

// Runs are measured at moments of their own. Between two of them a run is taken to change evenly, and an arm is the mean of its runs over
// the stretch that all of them cover.
export function meanOf(curves) {
  const known = curves.map(({ x, y }) => (x || []).map((v, i) => [v, (y || [])[i]]).filter(([, v]) => v !== null && v !== undefined)).filter((points) => points.length);
  if (!known.length) return new Map();
  const from = Math.max(...known.map((points) => points[0][0])), to = Math.min(...known.map((points) => points.at(-1)[0]));
  const all = [...new Set(known.flatMap((points) => points.map(([x]) => x)))].filter((x) => x >= from && x <= to).sort((a, b) => a - b);
  const places = known.map(() => 0);
  return new Map(all.map((x) => [x, mean(known.map((points, i) => {
    while (places[i] < points.length - 2 && points[places[i] + 1][0] <= x) places[i] += 1;
    const [[x0, y0], [x1, y1]] = [points[places[i]], points[places[i] + 1] || points[places[i]]];
    return x1 > x0 ? y0 + ((y1 - y0) * (x - x0)) / (x1 - x0) : y0;
  }))]));
}

function together(arms, x, y) {
  const means = arms.map((arm) => meanOf(arm.runs.map((run) => ({ x: x(run), y: y(run) }))));
  const all = [...new Set(means.flatMap((each) => [...each.keys()]))].sort((a, b) => a - b);
  return { x: all, series: means.map((by, i) => ({ label: arms[i].label, values: all.map((v) => by.get(v) ?? null), colour: `series-${i + 1}`, points: false })) };
}

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const note = (arms) => (arms.some((arm) => arm.runs.length > 1) ? "means over seeds" : null);

function curves(arms, unit) {
  let axis = "time";
  const [first] = arms[0].runs, name = arms.flatMap((arm) => arm.runs).find((run) => run.metric.name)?.metric.name;
  const chart = lines("The metric of each arm", () => {
    const a = along(first, axis, unit);
    return { ...together(arms, (run) => along(run, axis, unit).x, (run) => run.evaluations[run.metric.name]), xLabel: a.label, xFormat: a.format, yFormat: (v) => f.metric(name, v) };
  }, { height: 340 });
  const tools = select("Horizontal axis", Object.entries(AXES).map(([key, text]) => [key, `over ${text}`]), axis, (value) => { axis = value; chart.isZoomed = false; chart.rebuild(); });
  return { element: card(`Test ${f.metricName(name)}`, { tools, note: note(arms) }, h("div", { class: "body" }, chart.element)), close: () => chart.close() };
}

function online(arms, unit) {
  const chart = lines("Nodes online in each arm", () => ({
    ...together(arms, (run) => (run.online.simulated_s || []).map((s) => s / unit.s), (run) => run.online.online), xLabel: unit.label, yWhole: true, yRange: (_, low, high) => [0, high * 1.08 || 1],
  }), { height: 260 });
  return { element: card("Nodes online", { note: note(arms) }, h("div", { class: "body" }, chart.element)), close: () => chart.close() };
}

const swatch = (i) => (i < 0 ? null : h("span", { class: `swatch s${i + 1}`, "aria-hidden": "true" }));
const named = (arm, i) => [swatch(i), h("a", { href: `#/run/${encodeURIComponent(arm.runs[0].id)}`, title: arm.runs.map((run) => run.id).join(", ") }, arm.label)];
const head = (arms, places, first) => h("thead", {}, h("tr", {}, h("th", {}, first), arms.map((arm, i) => h("th", { class: "number" }, named(arm, places[i])))));
// A phone has no room for columns: there each cell says whose it is.
const cell = (arm, i, text) => h("td", { class: "number" }, h("span", { class: "whose" }, named(arm, i)), h("span", {}, text));

// Arms of one setting: what is seen in words, the numbers, and how they are to be read. All of it is from the server.
function judged(setting, drawn) {
  const arms = setting.arms.map(({ label, runs }) => ({ label, runs: runs.map((id) => ({ id })) }));
  const places = arms.map((arm) => drawn.findIndex((each) => each.runs[0].id === arm.runs[0].id));
  return card(setting.title, {}, h("div", { class: "body" }, setting.seen.split("\n\n").filter(Boolean).map((text) => h("p", { class: "seen" }, text))),
    h("div", { class: "scroll" }, h("table", { class: "side" }, head(arms, places, ""), h("tbody", {}, setting.rows.map(([name, ...texts]) =>
      h("tr", {}, h("td", {}, name), arms.map((arm, i) => cell(arm, places[i], texts[i]))))))),
    h("div", { class: "body" }, h("p", { class: "reading" }, setting.note)));
}

function phases(arms) {
  const parts = arms.map((arm) => arm.runs.map((run) => run.phase_means_s).filter((each) => each.training_s !== undefined));
  const shown = arms.map((arm, i) => ({ arm, i, s: (name) => mean(parts[i].map((each) => each[`${name}_s`])) })).filter(({ i }) => parts[i].length);
  if (!shown.length) return card("Where a round’s time goes", {}, h("p", { class: "empty" }, "None of these runs has rounds with phases."));
  const total = ({ s }) => PARTS.reduce((sum, [name]) => sum + s(name), 0), longest = Math.max(1e-9, ...shown.map(total));
  return card("Where a round’s time goes", { note: note(arms) }, h("div", { class: "body stack" }, shown.map((each) => {
    const bar = h("div", { class: "shares", role: "img", "aria-label": PARTS.map(([name]) => `${name} ${f.seconds(each.s(name))}`).join(", ") });
    for (const [name] of PARTS) {
      const part = h("span", { class: `sw-${name}`, title: `${name} ${f.seconds(each.s(name))}` });
      part.style.width = `${(100 * each.s(name)) / longest}%`;
      bar.append(part);
    }
    return h("div", {}, h("h3", {}, swatch(each.i), `${each.arm.label}: ${f.seconds(total(each))}`), bar);
  }), h("ul", { class: "keys" }, PARTS.map(([name, text]) => h("li", { class: "key" }, h("i", { class: `sw-${name}` }), text)))));
}

function flat(value, prefix = "", found = {}) {
  for (const [key, each] of Object.entries(value || {})) {
    if (each && typeof each === "object" && !Array.isArray(each)) flat(each, `${prefix}${key}.`, found);
    else found[prefix + key] = JSON.stringify(each);
  }
  return found;
}

const varying = (specs) => [...new Set(specs.flatMap(Object.keys))].filter((key) => new Set(specs.map((spec) => spec[key])).size > 1);

function differences(arms) {
  const seeds = (arm) => arm.runs.map((run) => run.seed).filter((seed) => seed !== null && seed !== undefined).sort((a, b) => a - b).join(", ") || "–";
  const keys = varying(arms.map((arm) => arm.setting)).sort();
  const rows = [["seed", seeds], ...keys.map((key) => [key, (arm) => arm.setting[key] ?? "–"])].filter(([, value]) => new Set(arms.map(value)).size > 1);
  if (!rows.length) return card("Specs", {}, h("p", { class: "empty" }, arms.length > 1 ? "The specs are the same." : "The specs are the same, but for the seed."));
  return card("How the specs differ", {}, h("div", { class: "scroll" }, h("table", { class: "side" }, head(arms, arms.map((_, i) => i), "Key"), h("tbody", {}, rows.map(([key, value]) =>
    h("tr", {}, h("td", {}, h("code", {}, key)), arms.map((arm, i) => cell(arm, i, h("code", {}, value(arm))))))))));
}
