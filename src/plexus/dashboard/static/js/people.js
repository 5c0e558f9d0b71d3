// Nodes by name: who is in the moment that is shown, and a list of all.
import { card, h, replace } from "./dom.js";
import * as f from "./format.js";

const FIRST = 12;

export function namer(run) {
  const known = run.nodes_known;
  if (known.names) return (node) => `${node} · ${known.names[node] ?? "?"}`;
  return (node) => {
    const found = known.places.city[known.place_of[node]], city = /^\d+$/.test(found) ? `city ${found}` : found;
    return node >= run.nodes ? `server · ${city}` : `${node} · ${city}`;
  };
}

export const nodeLink = (id, node, t = null) => `#/run/${encodeURIComponent(id)}/node/${node}${t === null ? "" : `?at=${Math.round(t)}`}`;

// The newest evaluation at a moment.
function measured(run, t) {
  const { simulated_s: times = [] } = run.evaluations, at = times.findLastIndex((s) => s <= t), { name } = run.metric;
  return at < 0 || !name ? null : h("div", {}, h("h3", {}, f.metricName(name)), h("div", { class: "round" }, f.metric(name, run.evaluations[name][at])), h("p", {}, `of round ${f.whole(run.evaluations.round[at])}, at ${f.clock(times[at])}`));
}

export function momentPanel(state, name) {
  const { id } = state, { kind, attackers } = state.run;
  const element = h("aside", { class: "moment", "aria-label": "At this moment" });
  let seen = "", at = null;
  const item = (node, text) => h("li", {}, h("a", { href: nodeLink(id, node, at) }, h("span", {}, name(node)), h("span", {}, text)));
  const doing = (m, node) => {
    const training = m.training.get(node);
    if (training) return `training, ${f.seconds(m.t - training.began_s)}`;
    const way = m.moving.find((each) => each.age === 0 && (each.source === node || each.destination === node));
    if (way) return way.source === node ? "sending" : "receiving";
    return m.online.has(node) ? "waiting" : "offline";
  };
  const wrong = (m) => {
    const kinds = [...new Set(m.hit.values())].map((kind) => `${kind}: ${f.count([...m.hit.values()].filter((each) => each === kind).length, "node")}`);
    const attacking = m.sample.filter((node) => attackers[node]).length;
    return [...kinds, ...(attacking ? [`${attacking} of the sample attack`] : [])];
  };
  function show(m) {
    const under = m.moving.filter((each) => each.age === 0);
    at = m.t;
    const body = [
      measured(state.run, m.t),
      m.number === null ? null : h("div", {}, h("h3", {}, "Round"), h("div", { class: "round" }, f.whole(m.number)), h("p", {}, `under way for ${f.seconds(m.t - m.since_s)}`), h("p", {}, `begun with ${m.models} of ${f.count(m.participants, "model")}`)),
      m.twins.length ? h("div", {}, h("h3", {}, "Fork"), h("ul", {}, m.twins.map((node) => item(node, "made it too")))) : null,
      wrong(m).length ? h("div", {}, h("h3", {}, "Going wrong"), wrong(m).map((text) => h("p", {}, text))) : null,
      m.pusher === null ? null : h("div", {}, h("h3", {}, "Aggregator"), h("ul", {}, item(m.pusher, m.pusher === m.collector ? "begins and ends it" : "began this round"), m.collector === null || m.collector === m.pusher ? null : item(m.collector, "will end it"))),
      h("div", {}, h("h3", {}, `${m.number === null ? "Training" : "Sample"} (${m.sample.length})`), m.sample.length ? h("ul", {}, m.sample.slice(0, 16).map((node) => item(node, doing(m, node)))) : h("p", {}, "nobody"),
        m.sample.length > 16 ? h("p", {}, `and ${m.sample.length - 16} more`) : null),
      h("div", {}, h("h3", {}, "On their way"), h("p", {}, under.length ? m.number === null ? `${under.length} models` : `${under.filter((e) => e.kind === "train").length} models to train, ${under.filter((e) => e.kind !== "train").length} trained` : kind === "live" ? "no model now" : "no model at this moment"), m.thinned ? h("p", {}, "More was going on here than is shown.") : null),
    ];
    const key = JSON.stringify([m.number, m.twins, m.hit.size, m.sample, under.length, Math.floor(m.t), [...m.training.keys()]]);
    if (key === seen || element.contains(document.activeElement)) return;
    seen = key;
    replace(element, body);
  }
  return { element, show };
}

export function nodesCard(state) {
  const { id, run } = state, known = run.nodes_known, name = namer(run);
  const count = known.place_of ? known.place_of.length : known.names.length;
  let shown = FIRST, words = "", moment = null;
  const body = h("tbody");
  const more = h("button", { type: "button", onclick: () => { shown += 100; show(); } }, "Show more");
  const search = h("input", { type: "search", placeholder: known.names ? "Name or number" : "City or number", "aria-label": known.names ? "Find nodes by name or number" : "Find nodes by city or number", oninput: () => { words = search.value.trim().toLowerCase(); show(); } });
  const column = known.place_of ? [["Up link", (n) => `${f.bytes(known.up_bytes_per_s[n])}/s`], ["One training", (n) => f.seconds(known.training_s[n])]] : [["Round", (n) => f.whole(state.run.statuses[n]?.round)], ["Waits for", (n) => waits(state.run.statuses[n])]];
  const used = new Map((run.used.node || []).map((n, i) => [n, `${run.used.trainings_used[i]} of ${run.used.trainings[i]}`]));
  if (used.size) column.push(["Used", (n) => used.get(n) ?? "–"]);
  const doing = (n) => (!moment ? "" : moment.training.has(n) ? "training" : n === moment.pusher ? "aggregator" : moment.online.has(n) ? "online" : "offline");
  const rank = { training: 0, aggregator: 1, online: 2, offline: 3 };
  function show() {
    const found = [];
    for (let n = 0; n < count; n++) if (!words || name(n).toLowerCase().includes(words)) found.push(n);
    found.sort((a, b) => (rank[doing(a)] ?? 9) - (rank[doing(b)] ?? 9) || a - b);
    replace(body, found.slice(0, shown).map((n) => h("tr", {}, h("td", {}, h("a", { href: nodeLink(id, n) }, name(n))), h("td", {}, doing(n)), column.map(([, text], at) => h("td", { class: at ? "number" : "number wide" }, text(n))))));
    more.hidden = found.length <= shown;
  }
  show();
  const element = card("Nodes", { tools: search }, h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Node"), h("th", {}, "Now"), column.map(([text], at) => h("th", { class: at ? "number" : "number wide" }, text)))), body)), h("div", { class: "body" }, more));
  let due = 0;
  return { element, update: () => { if (!element.contains(document.activeElement)) show(); }, moment: (m) => {
    moment = m;
    const now = performance.now();
    if (now > due && !element.contains(document.activeElement)) { due = now + 800; show(); }
  } };
}

function waits(status) {
  if (!status) return "–";
  if (status.training) return `training round ${status.training.round}`;
  return status.waiting_for?.length ? status.waiting_for[0].what : "to be sampled";
}
