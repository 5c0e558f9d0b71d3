// The page of one run, while it goes on or afterwards.
import * as api from "./api.js";
import { card, h, replace, select } from "./dom.js";
import { faultSpans, lines, stacked } from "./charts.js";
import { Moments } from "./moments.js";
import { Player } from "./player.js";
import { WorldMap } from "./map.js";
import { roundsCard } from "./rounds.js";
import { momentPanel, namer, nodeLink, nodesCard } from "./people.js";
import * as f from "./format.js";

const EVERY_MS = 2000;
const MESSAGE_COLOURS = { model: "series-1", view: "series-3", membership: "series-2", ping: "series-5", pong: "series-4", ack: "series-6" };

export const timeUnit = (run) => {
  const simulated = run.kind === "live" ? "" : "simulated ";
  const longest = run.until_s || run.reached_s;
  if (longest < 300) return { s: 1, label: `${simulated}seconds` };
  return longest > 3 * 3600 ? { s: 3600, label: `${simulated}hours` } : { s: 60, label: `${simulated}minutes` };
};

export async function showRun({ main, place, isCurrent }, id) {
  const first = await begun(id, main, isCurrent);
  if (!first || !isCurrent()) return null;
  let { body: run, tag } = first;
  place(run.name, [id, null]);
  const state = { id, run, unit: timeUnit(run) };
  let parts = [], shape = "";
  const leave = () => parts.forEach((part) => part.close && part.close());
  function show() {
    leave();
    shape = shapeOf(state.run);
    parts = build(state);
    replace(main, h("div", { class: "stack" }, parts.map((part) => part.element)));
  }
  show();
  const timer = setInterval(async () => {
    if (state.run.status !== "running" || document.hidden) return;
    const fresh = await api.run(id, tag).catch(() => null);
    if (!fresh || !isCurrent()) return;
    tag = fresh.tag;
    state.run = fresh.body;
    if (shapeOf(state.run) !== shape) show();
    else for (const part of parts) if (part.update) part.update();
  }, EVERY_MS);
  return () => { clearInterval(timer); leave(); };
}

// Which parts a page has: a run that has just begun gets more of them.
const rowsOf = (table) => (table.simulated_s || table.to_s || table.node || []).length;
const shapeOf = (run) => [run.metric.name, rowsOf(run.online) > 0, rowsOf(run.phases) > 0, rowsOf(run.traffic) > 1, Object.keys(run.nodes_known).length > 0, (run.nodes_known.place_of || []).length, rowsOf(run.used)].join();

// A run that is about to begin has no directory yet.
async function begun(id, main, isCurrent) {
  for (let tries = 0; isCurrent(); tries++) {
    try {
      return await api.run(id);
    } catch (error) {
      if (error.status !== 404 || tries > 120) throw error;
      replace(main, h("p", { class: "loading", role: "status" }, "Waiting for the run to begin …"));
      await new Promise((done) => { setTimeout(done, 1000); });
    }
  }
  return null;
}

function build(state) {
  const { run } = state;
  const live = () => state.run.status === "running";
  const player = new Player({ until: Math.max(1, run.reached_s), live: live(), at: live() ? run.reached_s : run.reached_s / 2, unit: run.kind === "live" ? "Time since the start" : "Simulated time", speed: run.kind === "live" ? 1 : 60, spans: faultSpans(run, { s: 1 }) });
  const seek = (t) => player.seek(t);
  const rounds = rowsOf(run.phases) ? roundsCard(state, seek) : null;
  const people = (run.nodes_known.place_of || run.nodes_known.names) ? nodesCard(state) : null;
  const charts = [curveCard(state, seek), onlineCard(state, seek)].filter(Boolean);
  const world = run.nodes_known.place_of || run.nodes_known.names ? mapCard(state, player, (moment, data) => {
    if (rounds) rounds.moment(data, player.t);
    if (people) people.moment(moment);
    for (const chart of charts) chart.mark(player.t / state.unit.s);
  }) : null;
  const pair = charts.length ? { element: h("div", { class: "two" }, charts.map((each) => each.element)), update: () => charts.forEach((each) => each.update()), close: () => charts.forEach((each) => each.close()) } : null;
  const traffic = rowsOf(run.traffic) > 1 ? trafficCard(state, seek) : null;
  const bottom = [traffic, people].filter(Boolean);
  const last = { element: h("div", { class: "two" }, bottom.map((each) => each.element)), update: () => bottom.forEach((each) => each.update && each.update()), close: () => bottom.forEach((each) => each.close && each.close()) };
  return [headPart(state), tilesPart(state), world, pair, rounds, last, specPart(state)].filter(Boolean);
}

function headPart(state) {
  const element = h("div", { class: "head" });
  const update = () => {
    const run = state.run, spec = run.spec || {};
    const about = [run.kind === "live" ? "live" : null, run.protocol, run.task, `${f.whole(run.nodes)} nodes`, spec.seed === undefined ? null : `seed ${spec.seed}`, run.started ? `started ${f.date(run.started)}` : null, ...(run.tags || []).map((tag) => `#${tag}`), run.note];
    replace(element, h("h1", {}, run.name), h("span", { class: `pill ${run.status}` }, f.words[run.status] || run.status),
      h("p", { class: "meta" }, about.filter(Boolean).join(" · ")));
  };
  update();
  return { element, update };
}

function tilesPart(state) {
  const element = h("dl", { class: "tiles" });
  element.style.margin = "0";
  const tile = (name, value, small = "") => h("div", { class: "card tile" }, h("dt", {}, name), h("dd", {}, value, " ", h("small", {}, small)));
  const update = () => {
    const run = state.run, m = run.metric, t = run.traffic, last = (column) => (column && column.length ? column[column.length - 1] : null);
    const types = Object.keys(t).filter((key) => key.endsWith("_bytes"));
    const sent = run.result ? Object.values(run.result.messages).reduce((sum, each) => sum + each.bytes, 0) : types.length ? types.reduce((sum, key) => sum + last(t[key]), 0) : null;
    const statuses = (run.statuses || []).filter(Boolean), isOver = run.kind === "live" && run.status !== "running";
    const trained = run.result ? run.result.training_s : last(t.training_s);
    replace(element,
      tile(m.name ? `Best ${f.metricName(m.name)}` : "Metric", f.metric(m.name, m.best), m.name ? `now ${f.metric(m.name, m.final)}` : ""),
      tile("Rounds", f.whole(run.rounds), run.made_twice ? f.count(run.made_twice, "fork") : run.phase_means_s.training_s === undefined ? "" : `${f.seconds(Object.values(run.phase_means_s).reduce((a, b) => a + b, 0))} each`),
      tile(run.kind === "live" ? "Running for" : "Simulated", f.clock(run.reached_s), run.until_s ? `of ${f.hours(run.until_s)}` : ""),
      isOver ? tile("Online at most", f.whole(Math.max(0, ...(run.online.online || []))), `of ${f.whole(run.nodes)} nodes`)
        : tile("Online", f.whole(last(run.online.online) ?? statuses.length), `of ${f.whole(run.nodes)} nodes`),
      tile("Sent", f.bytes(sent ?? (run.sent_bytes || null)), sent === null && !isOver ? "" : "in all"),
      trained === null ? null : tile("Training", f.hours(trained), "on devices"));
  };
  update();
  return { element, update };
}

function mapCard(state, player, told) {
  const { id, run } = state;
  const name = namer(run);
  const count = run.nodes_known.place_of ? run.nodes_known.place_of.length : run.nodes_known.names.length;
  const open = (node) => { window.location.hash = nodeLink(id, node, player.follows ? null : player.t); };
  const map = new WorldMap({ nodes: run.nodes_known, count, name, open, hasRounds: rowsOf(run.phases) > 0, attackers: run.attackers, hasFaults: run.faults.length > 0 });
  const panel = momentPanel(state, name);
  const redraw = () => {
    const trail = Math.max(player.isPlaying ? player.speed * 0.7 : 12, 1);
    const moment = moments.at(player.t, trail);
    if (!moment) return;
    map.draw(moment);
    const now = performance.now();
    if (!player.isPlaying || now - drawn > 150) { drawn = now; panel.show(moment); told(moment, moments.data); }
  };
  let drawn = 0;
  const moments = new Moments(id, redraw);
  player.onmoment((t) => { moments.need(t, player.perSecond); redraw(); });
  moments.need(player.t, 0);
  const title = map.isWorld ? "Map of the nodes" : "The nodes";
  const element = h("section", { class: "card map-layout", "aria-label": title }, map.element, panel.element, player.element);
  return { element, close: () => { map.close(); player.close(); }, update: () => { player.extend(state.run.reached_s, state.run.status === "running"); if (player.follows) moments.need(player.t, 0, true); } };
}

export const AXES = { time: "time", sent: "bytes sent", training: "training hours", round: "rounds" };
export function along(run, axis, unit) {
  const e = run.evaluations;
  if (axis === "sent") return { x: e.sent_bytes, label: "sent by all nodes", format: f.bytes };
  if (axis === "training") return { x: (e.training_s || []).map((s) => s / 3600), label: "hours of training on devices" };
  if (axis === "round") return { x: e.round, label: "round" };
  return { x: (e.simulated_s || []).map((s) => s / unit.s), label: unit.label };
}

function curveCard(state, seek) {
  const m = state.run.metric;
  if (!m.name) return null;
  let axis = "time";
  const chart = lines("The metric on the test set", () => {
    const { run, unit } = state, name = run.metric.name, e = run.evaluations, a = along(run, axis, unit);
    const values = e[name] || [];
    const series = [{ label: f.metricName(name), values, colour: "series-1", fill: 8 }];
    if (e[`${name}_best`]) series.push({ label: "best node", values: e[`${name}_best`], colour: "series-3", width: 1.4, dash: [5, 4] });
    return { x: a.x || [], xLabel: a.label, xFormat: a.format, yFormat: (v) => f.metric(name, v), series, spans: axis === "time" ? faultSpans(run, unit) : [] };
  }, { height: 290, pick: (x) => { if (axis === "time") seek(x * state.unit.s); } });
  const axes = Object.entries(AXES).filter(([key]) => key === "time" || key === "round" || (state.run.evaluations.sent_bytes && state.run.evaluations.training_s));
  const tools = select("Horizontal axis", axes.map(([key, text]) => [key, `over ${text}`]), axis, (value) => { axis = value; chart.isZoomed = false; chart.mark(null); chart.rebuild(); });
  return { element: card(m.name ? `Test ${f.metricName(m.name)}` : "Metric", { tools }, h("div", { class: "body" }, chart.element)), mark: (x) => chart.mark(axis === "time" ? x : null), update: () => chart.update(), close: () => chart.close() };
}

// Two tables with times of their own on one axis.
function joined(a, b, columns) {
  const times = [...new Set([...(a.simulated_s || []), ...(b.simulated_s || [])])].sort((p, q) => p - q);
  const at = (table, name) => { const by = new Map((table.simulated_s || []).map((s, i) => [s, table[name][i]])); return times.map((s) => by.get(s) ?? null); };
  return { times, values: columns.map(([table, name]) => at(table === "a" ? a : b, name)) };
}

function onlineCard(state, seek) {
  if (!(state.run.online.simulated_s || []).length) return null;
  const chart = lines("Nodes online, and how many nodes views hold to be online", () => {
    const { run, unit } = state, v = run.views, has = (v.simulated_s || []).length;
    const { times, values } = joined(run.online, v, [["a", "online"], ...(has ? [["b", "mean_view"], ["b", "min_view"], ["b", "max_view"]] : [])]);
    const series = [{ label: "online", values: values[0], colour: "series-1", points: false }];
    if (has) series.push({ label: "mean view", values: values[1], colour: "series-2", points: false }, { label: "smallest", values: values[2], colour: "series-2", width: 0.8, dash: [3, 3], points: false }, { label: "largest", values: values[3], colour: "series-2", width: 0.8, dash: [3, 3], points: false });
    return { x: times.map((s) => s / unit.s), xLabel: unit.label, yWhole: true, series, spans: faultSpans(run, unit), bands: has ? [{ series: [4, 3], colour: "series-2" }] : undefined, yRange: (_, low, high) => [0, high * 1.08 || 1] };
  }, { height: 290, pick: (x) => seek(x * state.unit.s) });
  const note = (state.run.views.simulated_s || []).length ? "and how many the nodes online believe there are" : null;
  return { element: card("Nodes online", { note }, h("div", { class: "body" }, chart.element)), mark: (x) => chart.mark(x), update: () => chart.update(), close: () => chart.close() };
}

function trafficCard(state, seek) {
  let what = "bytes";
  const types = () => Object.keys(state.run.traffic).filter((key) => key.endsWith("_count")).map((key) => key.slice(0, -6)).filter((type) => last(state.run.traffic[`${type}_count`]) > 0);
  const last = (column) => column[column.length - 1];
  const rate = (column, s) => column.map((v, i) => (i === 0 ? 0 : ((v - column[i - 1]) * 3600) / (s[i] - s[i - 1])));
  const chart = stacked("Messages by type, an hour", () => {
    const t = state.run.traffic;
    const ordered = types().sort((a, b) => last(t[`${b}_${what}`]) - last(t[`${a}_${what}`]));
    return { x: t.simulated_s.map((s) => s / state.unit.s), xLabel: state.unit.label, yFormat: what === "bytes" ? f.bytes : f.whole, spans: faultSpans(state.run, state.unit),
      series: ordered.map((type) => ({ label: type, colour: MESSAGE_COLOURS[type] || "series-6", values: rate(t[`${type}_${what}`], t.simulated_s) })) };
  }, { height: 250, pick: (x) => seek(x * state.unit.s) });
  const body = h("tbody");
  // The newest row of a table that is written now and then; of a finished run, what it was in the end.
  const sums = () => {
    const t = state.run.traffic, end = state.run.result?.messages;
    const all = end ? Object.entries(end).map(([type, each]) => ({ type, ...each })) : types().map((type) => ({ type, count: last(t[`${type}_count`]), bytes: last(t[`${type}_bytes`]) }));
    return all.filter((each) => each.count > 0).sort((a, b) => b.bytes - a.bytes);
  };
  const show = () => {
    const rows = sums(), total = rows.reduce((sum, each) => sum + each.bytes, 0) || 1;
    replace(body, rows.map(({ type, count, bytes }) => {
      const bar = h("span", { class: "bar-fill" }), share = bytes / total;
      bar.style.width = `${Math.max(0.5, 100 * share)}%`;
      return h("tr", {}, h("td", {}, type), h("td", { class: "number" }, f.whole(count)), h("td", { class: "number" }, f.bytes(bytes)), h("td", {}, h("div", { class: "bar", title: `${(100 * share).toFixed(1)} %` }, bar)));
    }));
  };
  show();
  const tools = select("What to count", [["bytes", "bytes an hour"], ["count", "messages an hour"]], what, (value) => { what = value; chart.isZoomed = false; chart.rebuild(); });
  const element = card("Messages by type", { tools }, h("div", { class: "body" }, chart.element), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Type"), h("th", { class: "number" }, "Sent"), h("th", { class: "number" }, "Bytes"), h("th", {}, "Share"))), body)));
  return { element, update: () => { show(); chart.update(); }, close: () => chart.close() };
}

function specPart(state) {
  const { spec, versions, result } = state.run;
  const text = (value) => JSON.stringify(value, null, 2);
  return { element: h("section", { class: "card", "aria-label": "Spec and result" }, h("div", { class: "body" },
    h("details", {}, h("summary", {}, "Spec, versions and result"), h("pre", { tabindex: 0 }, text({ spec, versions, result }))))) };
}
