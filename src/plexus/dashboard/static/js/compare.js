// Several arms on the same axes, their numbers side by side, and how their specs differ. Runs of one setting are one arm.
import * as api from "./api.js";
import { card, h, replace, select } from "./dom.js";
import { lines } from "./charts.js";
import { along, AXES, timeUnit } from "./run.js";
import { PARTS } from "./rounds.js";
import * as f from "./format.js";

const MOST_ARMS = 6, MOST_RUNS = 60;
const NOT_THE_SETTING = ["seed", "name"];
// Quantiles of Student's t for two-sided intervals of 95 %, by degrees of freedom from 1; 1.96 for more.
const STUDENT_95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086];

export async function showCompare({ main, place, isCurrent }, ids) {
  place("Compare", ["compare", null]);
  if (ids.length < 2) throw new Error("Choose two runs or more in the list to compare them.");
  const answers = await Promise.all(ids.slice(0, MOST_RUNS).map((id) => api.run(id).catch((error) => ({ error, id }))));
  if (!isCurrent()) return null;
  const runs = answers.filter((each) => !each.error).map((each) => each.body), damaged = answers.filter((each) => each.error);
  if (runs.length < 2) throw damaged[0].error;
  const all = armsOf(runs), arms = all.slice(0, MOST_ARMS);
  const longest = runs.reduce((a, b) => ((b.until_s || b.reached_s) > (a.until_s || a.reached_s) ? b : a));
  const unit = timeUnit({ ...longest, kind: runs.some((run) => run.kind === "live") ? "live" : longest.kind });
  const charts = [curves(arms, unit), online(arms, unit)];
  const more = all.length > MOST_ARMS ? `the first ${MOST_ARMS} of ${all.length} settings` : null;
  replace(main, h("div", { class: "stack" },
    h("div", { class: "head" }, h("h1", {}, `${runs.length} runs compared`), more ? h("p", { class: "meta" }, more) : null),
    damaged.map((each) => h("p", { class: "card error" }, `${each.id}: ${each.error.message}`)),
    charts[0].element, numbers(arms), h("div", { class: "two" }, charts[1].element, phases(arms)), differences(arms)));
  return () => charts.forEach((chart) => chart.close());
}

// Runs of one setting, one for each seed, named by what sets the setting apart from the others.
export function armsOf(runs) {
  const groups = new Map();
  for (const run of runs) {
    const setting = flat(run.spec);
    for (const key of NOT_THE_SETTING) delete setting[key];
    const key = JSON.stringify([run.kind, setting]);
    if (!groups.has(key)) groups.set(key, { runs: [], setting, kind: run.kind });
    groups.get(key).runs.push(run);
  }
  const arms = [...groups.values()];
  const keys = varying(arms.map((arm) => arm.setting)).filter((key) => !key.startsWith("session."));
  const hasLive = arms.some((arm) => arm.kind === "live") && arms.some((arm) => arm.kind !== "live");
  const names = arms.map(({ setting }) => keys.filter((key) => isTold(key, setting, arms)).slice(0, 3).map((key) => words(key, setting[key])).join(", "));
  arms.forEach((arm, i) => {
    const isApart = names[i] && names.indexOf(names[i]) === names.lastIndexOf(names[i]);
    const ids = arm.runs.length > 1 ? arm.runs[0].name : arm.runs[0].id;
    arm.label = (isApart ? names[i] : ids) + (hasLive ? (arm.kind === "live" ? " (live)" : " (simulated)") : "");
  });
  return arms.sort((a, b) => a.label.localeCompare(b.label, "en", { numeric: true }));
}

// A parameter sets an arm apart from others of its protocol alone; how often it is measured tells nobody anything.
function isTold(key, setting, arms) {
  if (key.startsWith("evaluation.")) return arms.length === 2 && varying(arms.map((arm) => arm.setting)).every((each) => each.startsWith("evaluation."));
  if (!key.startsWith("protocol.") || key === "protocol.name") return true;
  return varying(arms.map((arm) => arm.setting).filter((each) => each["protocol.name"] === setting["protocol.name"])).includes(key);
}

function words(key, value) {
  const many = value?.startsWith("[{") ? JSON.parse(value) : null;  // faults, attackers
  if (many) return `${key}: ${[...new Set(many.map((each) => each.kind || each.behaviour))].join(", ")}`;
  if (["faults", "attackers"].includes(key)) return `no ${key}`;
  const text = (value ?? "default").replaceAll('"', "");
  return ["protocol.name", "task.name"].includes(key) ? text : `${key.replace(/\.name$/, "").split(".").at(-1)} = ${text}`;
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

const swatch = (i) => h("span", { class: `swatch s${i + 1}`, "aria-hidden": "true" });
const named = (arm, i) => [swatch(i), h("a", { href: `#/run/${encodeURIComponent(arm.runs[0].id)}`, title: arm.runs.map((run) => run.id).join(", ") }, arm.label)];
const head = (arms, first) => h("thead", {}, h("tr", {}, h("th", {}, first), arms.map((arm, i) => h("th", { class: "number" }, named(arm, i)))));
// A phone has no room for columns: there each cell says whose it is.
const cell = (arm, i, text, kind = "") => h("td", { class: `number ${kind}` }, h("span", { class: "whose" }, named(arm, i)), h("span", {}, text));

// The mean over seeds and half its interval, where there are several.
export function overSeeds(values) {
  const known = values.filter((v) => v !== null && v !== undefined && !Number.isNaN(v));
  if (!known.length) return null;
  const middle = mean(known), freedom = known.length - 1;
  if (!freedom) return { mean: middle, half: null };
  const deviation = Math.sqrt(known.reduce((sum, v) => sum + (v - middle) ** 2, 0) / freedom);
  return { mean: middle, half: ((STUDENT_95[freedom - 1] ?? 1.96) * deviation) / Math.sqrt(known.length) };
}

function numbers(arms) {
  const sent = (run) => { const e = run.evaluations.sent_bytes; return run.result ? Object.values(run.result.messages).reduce((sum, m) => sum + m.bytes, 0) : e ? e[e.length - 1] : null; };
  const trained = (run) => run.result?.training_s ?? (run.evaluations.training_s || []).at(-1) ?? null;
  const round = (run) => { const all = Object.values(run.phase_means_s); return all.length ? all.reduce((a, b) => a + b, 0) : null; };
  const [first] = arms[0].runs, better = first.metric.higher_is_better ? 1 : -1, metric = (v) => f.metric(first.metric.name, v);
  const rows = [
    ["Best metric", (run) => run.metric.best, metric, better],
    ["Newest metric", (run) => run.metric.final, metric, better],
    ["Rounds", (run) => run.rounds, f.whole, 0],
    ["Seconds a round", round, f.seconds, -1],
    ["Sent by all nodes", sent, f.bytes, -1],
    ["Training on devices", trained, f.hours, -1],
    ["Nodes online, mean", (run) => (run.online.online?.length ? mean(run.online.online) : null), f.whole, 0],
    ["Simulated, or live for", (run) => run.reached_s, f.hours, 0],
  ];
  const isOneSetting = ["hours", "task.name", "nodes"].every((key) => new Set(arms.map((arm) => arm.setting[key])).size === 1);
  const about = isOneSetting ? "the best of each row is marked, with what is within its 95 % interval" : "not ranked: other tasks, hours or nodes";
  return card("In numbers", { note: about }, h("div", { class: "scroll" }, h("table", { class: "side" }, head(arms, ""), h("tbody", {}, rows.map(([name, value, text, sign]) => {
    const found = arms.map((arm) => overSeeds(arm.runs.map(value)));
    const shown = found.map((each) => (each === null ? "–" : text(each.mean) + (each.half === null ? "" : ` ± ${text(each.half)}`)));
    const marked = isOneSetting && sign ? best(found, shown, sign) : [];
    return h("tr", {}, h("td", {}, name), arms.map((arm, i) => cell(arm, i, shown[i], marked.includes(i) ? "better" : "")));
  })))));
}

// The best, and all that cannot be told from it; nobody where that is everybody.
function best(found, shown, sign) {
  const known = found.map((_, i) => i).filter((i) => found[i] !== null);
  if (known.length < 2) return [];
  const top = known.reduce((a, b) => (sign * found[b].mean > sign * found[a].mean ? b : a));
  const isAlike = (i) => shown[i] === shown[top] || Math.abs(found[i].mean - found[top].mean) <= (found[i].half ?? 0) + (found[top].half ?? 0);
  const alike = known.filter(isAlike);
  return alike.length === known.length ? [] : alike;
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
  return card("How the specs differ", {}, h("div", { class: "scroll" }, h("table", { class: "side" }, head(arms, "Key"), h("tbody", {}, rows.map(([key, value]) =>
    h("tr", {}, h("td", {}, h("code", {}, key)), arms.map((arm, i) => cell(arm, i, h("code", {}, value(arm))))))))));
}
