// Several runs on the same axes, their numbers side by side, and how their specs differ.
import * as api from "./api.js";
import { card, h, replace, select } from "./dom.js";
import { lines } from "./charts.js";
import { along, AXES, timeUnit } from "./run.js";
import { PARTS } from "./rounds.js";
import * as f from "./format.js";

const MOST = 6;

export async function showCompare({ main, place, isCurrent }, ids) {
  place("Compare", ["compare", null]);
  if (ids.length < 2) throw new Error("Choose two runs or more in the list to compare them.");
  const runs = (await Promise.all(ids.slice(0, MOST).map((id) => api.run(id)))).map((each) => each.body);
  if (!isCurrent()) return null;
  labels = labelled(runs);
  const longest = runs.reduce((a, b) => ((b.until_s || b.reached_s) > (a.until_s || a.reached_s) ? b : a));
  const unit = timeUnit({ ...longest, kind: runs.some((run) => run.kind === "live") ? "live" : longest.kind });
  const charts = [curves(runs, unit), online(runs, unit)];
  replace(main, h("div", { class: "stack" },
    h("div", { class: "head" }, h("h1", {}, `${runs.length} runs compared`), ids.length > MOST ? h("p", { class: "meta" }, `the first ${MOST} of ${ids.length}`) : null),
    charts[0].element, numbers(runs), h("div", { class: "two" }, charts[1].element, phases(runs)), differences(runs)));
  return () => charts.forEach((chart) => chart.close());
}

// Runs are measured at moments of their own: one axis with all of them, and gaps in between.
function together(runs, x, y) {
  const all = [...new Set(runs.flatMap((run) => x(run) || []))].sort((a, b) => a - b);
  return { x: all, series: runs.map((run) => { const by = new Map((x(run) || []).map((v, i) => [v, (y(run) || [])[i]])); return all.map((v) => by.get(v) ?? null); }) };
}
// By their ids, or where they share a name and so their ids are digests, by what sets them apart.
let labels = new Map();
const label = (run) => labels.get(run.id);
export function labelled(runs) {
  const specs = runs.map((run) => flat(run.spec)), keys = varying(specs).filter((key) => !key.startsWith("session."));
  const words = specs.map((spec) => keys.slice(0, 3).map((key) => `${key.split(".").at(-1)} = ${(spec[key] ?? "default").replaceAll('"', "")}`).join(", "));
  const isOneName = new Set(runs.map((run) => run.name)).size === 1, isApart = new Set(words).size === runs.length;
  const kind = (run) => (run.kind === "live" && runs.some((other) => other.kind !== "live") ? " (live)" : "");
  return new Map(runs.map((run, i) => [run.id, (isOneName && isApart ? words[i] : run.id) + kind(run)]));
}

function curves(runs, unit) {
  let axis = "time";
  const name = runs.find((run) => run.metric.name)?.metric.name;
  const chart = lines("The metric of each run", () => {
    const { x, series } = together(runs, (run) => along(run, axis, unit).x, (run) => run.evaluations[run.metric.name]);
    const a = along(runs[0], axis, unit);
    return { x, xLabel: a.label, xFormat: a.format, yFormat: (v) => f.metric(name, v), series: series.map((values, i) => ({ label: label(runs[i]), values, colour: `series-${i + 1}`, points: false })) };
  }, { height: 340 });
  const tools = select("Horizontal axis", Object.entries(AXES).map(([key, text]) => [key, `over ${text}`]), axis, (value) => { axis = value; chart.isZoomed = false; chart.rebuild(); });
  return { element: card(`Test ${f.metricName(name)}`, { tools }, h("div", { class: "body" }, chart.element)), close: () => chart.close() };
}

function online(runs, unit) {
  const chart = lines("Nodes online in each run", () => {
    const { x, series } = together(runs, (run) => (run.online.simulated_s || []).map((s) => s / unit.s), (run) => run.online.online);
    return { x, xLabel: unit.label, yWhole: true, series: series.map((values, i) => ({ label: label(runs[i]), values, colour: `series-${i + 1}`, points: false })), yRange: (_, low, high) => [0, high * 1.08 || 1] };
  }, { height: 260 });
  return { element: card("Nodes online", {}, h("div", { class: "body" }, chart.element)), close: () => chart.close() };
}

const swatch = (i) => h("span", { class: `swatch s${i + 1}`, "aria-hidden": "true" });
const head = (runs, first) => h("thead", {}, h("tr", {}, h("th", {}, first), runs.map((run, i) => h("th", { class: "number" }, swatch(i), h("a", { href: `#/run/${encodeURIComponent(run.id)}`, title: run.id }, label(run))))));

function numbers(runs) {
  const sent = (run) => { const e = run.evaluations.sent_bytes; return run.result ? Object.values(run.result.messages).reduce((sum, m) => sum + m.bytes, 0) : e ? e[e.length - 1] : null; };
  const trained = (run) => run.result?.training_s ?? (run.evaluations.training_s || []).at(-1) ?? null;
  const mean = (values) => (values && values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);
  const round = (run) => { const all = Object.values(run.phase_means_s); return all.length ? all.reduce((a, b) => a + b, 0) : null; };
  const higher = runs[0].metric.higher_is_better;
  const rows = [
    ["Best metric", (run) => run.metric.best, (v, run) => f.metric(run.metric.name, v), higher ? 1 : -1],
    ["Newest metric", (run) => run.metric.final, (v, run) => f.metric(run.metric.name, v), higher ? 1 : -1],
    ["Rounds", (run) => run.rounds, f.whole, 0],
    ["Seconds a round", round, f.seconds, -1],
    ["Sent by all nodes", sent, f.bytes, -1],
    ["Training on devices", trained, f.hours, -1],
    ["Nodes online, mean", (run) => mean(run.online.online), f.whole, 0],
    ["Simulated, or live for", (run) => run.reached_s, f.hours, 0],
  ];
  return card("In numbers", { note: "the best of each row is marked" }, h("div", { class: "scroll" }, h("table", {}, head(runs, ""), h("tbody", {}, rows.map(([name, value, text, better]) => {
    const values = runs.map(value), known = values.filter((v) => v !== null && v !== undefined);
    // What reads the same is equally good, whatever comes after its last digit.
    const shown = values.map((v, i) => (v === null || v === undefined ? "–" : text(v, runs[i])));
    const at = better && known.length ? values.indexOf(better > 0 ? Math.max(...known) : Math.min(...known)) : -1;
    const isMarked = (i) => at >= 0 && new Set(shown.filter((each) => each !== "–")).size > 1 && shown[i] === shown[at];
    return h("tr", {}, h("td", {}, name), shown.map((each, i) => h("td", { class: `number ${isMarked(i) ? "better" : ""}` }, each)));
  })))));
}

function phases(runs) {
  const rows = runs.filter((run) => run.phase_means_s.training_s !== undefined);
  const longest = Math.max(1e-9, ...rows.map((run) => PARTS.reduce((sum, [name]) => sum + run.phase_means_s[`${name}_s`], 0)));
  if (!rows.length) return card("Where a round’s time goes", {}, h("p", { class: "empty" }, "None of these runs has rounds with phases."));
  return card("Where a round’s time goes", {}, h("div", { class: "body stack" }, rows.map((run) => {
    const bar = h("div", { class: "shares", role: "img", "aria-label": PARTS.map(([name]) => `${name} ${f.seconds(run.phase_means_s[`${name}_s`])}`).join(", ") });
    let total = 0;
    for (const [name] of PARTS) { const part = h("span", { class: `sw-${name}`, title: `${name} ${f.seconds(run.phase_means_s[`${name}_s`])}` }); const share = run.phase_means_s[`${name}_s`]; total += share; part.style.width = `${(100 * share) / longest}%`; bar.append(part); }
    return h("div", {}, h("h3", {}, swatch(runs.indexOf(run)), `${label(run)}: ${f.seconds(total)}`), bar);
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

function differences(runs) {
  const specs = runs.map((run) => flat(run.spec));
  const keys = varying(specs).sort();
  if (!keys.length) return card("Specs", {}, h("p", { class: "empty" }, "The specs are the same."));
  return card("How the specs differ", {}, h("div", { class: "scroll" }, h("table", {}, head(runs, "Key"), h("tbody", {}, keys.map((key) => h("tr", {}, h("td", {}, h("code", {}, key)), specs.map((spec) => h("td", { class: "number" }, h("code", {}, spec[key] ?? "–")))))))));
}
