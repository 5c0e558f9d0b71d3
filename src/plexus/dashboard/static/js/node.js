// A node's own page: what it is, what it did, and what it waits for at a moment.
import * as api from "./api.js";
import { card, colour, h, replace } from "./dom.js";
import { lines } from "./charts.js";
import { Player } from "./player.js";
import { timeUnit } from "./run.js";
import { namer, nodeLink } from "./people.js";
import * as f from "./format.js";

const EVERY_MS = 2000;
const LANES = [["online", "online"], ["training", "training"], ["received", "transfer"], ["sent", "aggregation"], ["aggregated", "sampling"]];

export async function showNode({ main, place, isCurrent }, id, number, at) {
  const [{ body: run }, found] = await Promise.all([api.run(id), api.node(id, number)]);
  if (!isCurrent()) return null;
  const unit = timeUnit(run), name = namer(run);
  const state = { id, run, number, unit, node: found, name };
  place(`${name(number)}`, [id, `#/run/${encodeURIComponent(id)}`], [`node ${number}`, null]);
  const live = () => state.run.status === "running";
  const player = new Player({ until: Math.max(1, run.reached_s), live: live(), at: at === null ? run.reached_s : Number(at), unit: "Moment", speed: run.kind === "live" ? 1 : 60 });
  if (at !== null) player.follows = false;
  const now = h("div");
  const lanes = new Lanes(state, (t) => player.seek(t));
  const showNow = () => { replace(now, atMoment(state, player.t)); lanes.draw(player.t); };
  player.onmoment(showNow);
  const charts = chartsOf(state);
  replace(main, h("div", { class: "stack" },
    h("div", { class: "head" }, h("h1", {}, number >= run.nodes ? `The ${name(number)}` : `Node ${name(number)}`), h("a", { href: `#/run/${encodeURIComponent(id)}` }, "back to the run"), h("p", { class: "meta" }, [found.country, run.name].filter(Boolean).join(" · "))),
    h("div", { class: "two" }, card("At this moment", {}, h("div", { class: "body" }, now)), card("The device", {}, h("div", { class: "body" }, device(state)))),
    h("section", { class: "card", "aria-label": "What it did" }, h("header", {}, h("h2", {}, "What it did")), h("div", { class: "body" }, lanes.element), player.element),
    charts.length ? h("div", { class: "two" }, charts.map((each) => each.element)) : null,
    recent(state)));
  showNow();
  const timer = setInterval(async () => {
    if (!live() || document.hidden) return;
    const [overview, fresh] = await Promise.all([api.run(id), api.node(id, number)]).catch(() => [null, null]);
    if (!overview || !isCurrent()) return;
    state.run = overview.body; state.node = fresh;
    player.extend(state.run.reached_s, live());
    showNow();
  }, EVERY_MS);
  return () => { clearInterval(timer); player.close(); lanes.close(); charts.forEach((each) => each.close()); };
}

const rows = (table) => (table.simulated_s || []).length;
function under(table, t) {
  for (let i = rows(table) - 1; i >= 0; i--) if (table.began_s[i] <= t && t <= table.simulated_s[i]) return i;
  return null;
}

function presenceAt(node, t) {
  const p = node.presence;
  let found = { online: false, since_s: 0 };
  for (let i = 0; i < rows(p) && p.simulated_s[i] <= t; i++) found = { online: Boolean(p.online[i]), since_s: p.simulated_s[i] };
  return found;
}

function atMoment(state, t) {
  const { node, name } = state;
  if (node.status && t >= state.run.reached_s - 3) return liveStatus(node.status);
  const there = presenceAt(node, t), facts = [];
  const link = (other) => h("a", { href: nodeLink(state.id, other) }, name(other));
  let doing = there.online ? [state.number >= state.run.nodes ? "Waits for models" : "Waits to be sampled"] : ["Offline"];
  const training = under(node.trainings, t), sending = under(node.sent || {}, t), receiving = under(node.received || {}, t);
  if (there.online && receiving !== null) doing = ["Receives a model from ", link(node.received.source[receiving])];
  if (there.online && sending !== null) doing = ["Sends its model to ", link(node.sent.destination[sending])];
  if (there.online && training !== null) doing = [`Trains in round ${node.trainings.round[training]}`];
  facts.push([there.online ? "Online for" : "Offline for", f.clock(t - there.since_s)]);
  if (training !== null) facts.push(["Training", `for ${f.seconds(t - node.trainings.began_s[training])}, ${f.seconds(node.trainings.simulated_s[training] - t)} left`]);
  const s = node.states || {};
  let i = rows(s) - 1;
  while (i >= 0 && s.simulated_s[i] > t) i--;
  if (i >= 0) {
    if (s.view && s.view[i] !== null) facts.push(["Its view", `${f.whole(s.view[i])} nodes online, at ${f.clock(s.simulated_s[i])}`]);
    facts.push(["Newest round", f.whole(s.round[i])], ["Sent", f.bytes(s.sent_bytes[i])], ["Received", f.bytes(s.received_bytes[i])], ["Trained for", f.hours(s.training_s[i])]);
  }
  return [h("p", { class: "now" }, doing), list(facts)];
}

function liveStatus(status) {
  const waiting = (status.waiting_for || []).map((each) => [each.what, each.since_s === undefined ? null : `since ${f.seconds(each.since_s)}`, each.at_most_s === undefined ? null : `at most ${f.seconds(Math.max(0, each.at_most_s))} more`].filter(Boolean).join(", "));
  return [h("p", { class: "now" }, status.training ? `Trains in round ${status.training.round}` : status.phase === "online" ? "Online" : status.phase),
    list([["Waits for", waiting.length ? h("ul", {}, waiting.map((text) => h("li", {}, text))) : "to be sampled"], ["Round", f.whole(status.round)],
      ["Its view", `${f.whole(status.peers.known)} peers known, ${f.whole(status.peers.linked)} linked`], ["Transfers", f.whole(status.transfers.length)],
      ["Sent", f.bytes(status.counts.link_sent_bytes)], ["Received", f.bytes(status.counts.link_received_bytes)], ["Errors", f.whole(status.counts.errors)]])];
}

const list = (facts) => { const element = h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])); element.style.marginTop = "10px"; return element; };

function device({ node, run }) {
  if (node.status) return list([["Name", node.status.node], ["Address", node.status.address], ["Bandwidth", `${f.bytes(node.status.bandwidth_bytes_per_s)}/s`], ["Certificate", node.status.certificate_days_left === null ? "–" : `${node.status.certificate_days_left} days left`]]);
  if (node.name !== undefined) return list([["Name", node.name], ["State", "does not answer"]]);
  const where = node.latitude === null || node.latitude === undefined ? node.city : `${node.city}, ${node.country} (${node.latitude}°, ${node.longitude}°)`;
  return list([["City", String(where)], ["Up link", `${f.bytes(node.up_bytes_per_s)}/s`], ["Down link", `${f.bytes(node.down_bytes_per_s)}/s`],
    ["Inference", node.ms_per_sample === null ? "–" : `${node.ms_per_sample.toFixed(0)} ms an example`], ["One training", f.seconds(node.training_s)],
    ["Trainings", f.whole(rows(node.trainings))], ["Aggregations", f.whole(rows(node.aggregated))]]);
}

function chartsOf(state) {
  const s = state.node.states;
  if (!s || !rows(s)) return [];
  const { unit } = state, x = () => state.node.states.simulated_s.map((v) => v / unit.s);
  const made = [];
  const chart = (title, label, series, yFormat) => {
    const drawn = lines(label, () => ({ x: x(), xLabel: unit.label, yFormat, yWhole: yFormat === f.whole, series: series() }), { height: 230 });
    made.push({ element: card(title, {}, h("div", { class: "body" }, drawn.element)), close: () => drawn.close() });
  };
  if (s.view && s.view.some((v) => v !== null)) chart("Its view", "Nodes that it held to be online", () => [{ label: "in its view", values: state.node.states.view, colour: "series-2" }], f.whole);
  chart("Its traffic", "Bytes sent and received", () => [{ label: "sent", values: state.node.states.sent_bytes, colour: "series-1" }, { label: "received", values: state.node.states.received_bytes, colour: "series-3" }], f.bytes);
  return made;
}

function recent(state) {
  const { node, id, name } = state;
  const t = node.trainings, count = rows(t);
  if (!count) return null;
  const newest = Array.from({ length: Math.min(12, count) }, (_, i) => count - 1 - i);
  return card("Its newest trainings", {}, h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { class: "number" }, "Round"), h("th", { class: "number" }, "Began"), h("th", { class: "number" }, "Took"), h("th", {}, "Outcome"), h("th", {}, "Model sent to"))),
    h("tbody", {}, newest.map((i) => {
      const s = node.sent || {}, at = rows(s) ? s.round.findIndex((r, j) => s.kind[j] === "aggregate" && r === t.round[i] + 1 && s.began_s[j] >= t.simulated_s[i]) : -1;
      return h("tr", {}, h("td", { class: "number" }, f.whole(t.round[i])), h("td", { class: "number" }, f.clock(t.began_s[i])), h("td", { class: "number" }, f.seconds(t.simulated_s[i] - t.began_s[i])), h("td", {}, t.completed[i] ? "completed" : "interrupted"), h("td", {}, at < 0 ? "–" : h("a", { href: nodeLink(id, s.destination[at]) }, name(s.destination[at]), s.cut[at] ? " (cut)" : "")));
    })))));
}

class Lanes {
  constructor(state, pick) {
    this.state = state;
    this.canvas = h("canvas", { class: "gantt", role: "img", "aria-label": "When the node was online, trained, received, sent and aggregated" });
    this.element = h("div", {}, this.canvas);
    this.watcher = new ResizeObserver(() => this.draw(this.t));
    this.watcher.observe(this.element);
    this.ontheme = () => this.draw(this.t);
    document.addEventListener("theme", this.ontheme);
    this.canvas.addEventListener("click", (event) => { if (this.toTime) pick(this.toTime(event.clientX - this.canvas.getBoundingClientRect().left)); });
  }

  spans(lane) {
    const { node, run } = this.state;
    if (lane === "online") {
      const p = node.presence, found = [];
      for (let i = 0; i < rows(p); i++) if (p.online[i]) found.push([p.simulated_s[i], i + 1 < rows(p) ? p.simulated_s[i + 1] : run.reached_s]);
      return found;
    }
    if (lane === "training") return (node.trainings.simulated_s || []).map((end, i) => [node.trainings.began_s[i], end]);
    if (lane === "aggregated") return (node.aggregated.simulated_s || []).map((end) => [end, end]);
    const table = node[lane] || {};
    return (table.simulated_s || []).map((end, i) => [table.began_s[i], end]);
  }

  draw(t) {
    this.t = t;
    const width = this.element.clientWidth, ratio = window.devicePixelRatio || 1, high = 20, height = LANES.length * (high + 8) + 26;
    if (!width) return;
    this.canvas.width = width * ratio; this.canvas.height = height * ratio; this.canvas.style.height = `${height}px`;
    const draw = this.canvas.getContext("2d"), left = 84, until = Math.max(1, this.state.run.reached_s);
    draw.scale(ratio, ratio);
    draw.font = "12px system-ui, sans-serif"; draw.textBaseline = "middle";
    const x = (s) => left + (s / until) * (width - left - 6);
    this.toTime = (px) => ((px - left) / (width - left - 6)) * until;
    LANES.forEach(([lane, ink], row) => {
      const y = row * (high + 8);
      draw.fillStyle = colour("sunk"); draw.fillRect(left, y, width - left - 6, high);
      draw.fillStyle = colour("muted"); draw.textAlign = "right"; draw.fillText(lane, left - 10, y + high / 2);
      draw.fillStyle = colour(ink);
      for (const [from, to] of this.spans(lane)) draw.fillRect(x(from), y, Math.max(1.2, x(to) - x(from)), high);
    });
    draw.fillStyle = colour("muted");
    const ticks = width < 520 ? 2 : 4;
    for (let i = 0; i <= ticks; i++) { draw.textAlign = i === 0 ? "left" : i === ticks ? "right" : "center"; draw.fillText(f.clock((until * i) / ticks), x((until * i) / ticks), height - 9); }
    if (t !== undefined) { draw.fillStyle = colour("text"); draw.fillRect(x(t) - 1, 0, 2, height - 22); }
  }

  close() { this.watcher.disconnect(); document.removeEventListener("theme", this.ontheme); }
}
