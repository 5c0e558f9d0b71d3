// What was going on at one moment, from windows of a run that are fetched as they are needed.
import * as api from "./api.js";

const AHEAD_S = 300;

export class Moments {
  constructor(id, fetched) {
    this.id = id;
    this.fetched = fetched;
    this.data = null;
    this.pending = null;
    this.wanted = null;
  }

  // Have what is needed around `t`, and some more in the direction of play.
  async need(t, perSecond, fresh = false) {
    const ahead = Math.max(AHEAD_S, perSecond * 12), behind = Math.max(60, perSecond * 2);
    const has = this.data && !fresh && this.data.asked[0] <= t - behind / 2 && this.data.asked[1] >= t + ahead / 4;
    if (has) return;
    this.wanted = [Math.max(0, t - behind), t + ahead];
    if (this.pending) return;
    while (this.wanted) {
      const [from, to] = this.wanted;
      this.wanted = null;
      this.pending = api.windowOf(this.id, from, to);
      try {
        this.data = index(await this.pending);
        this.data.asked = [from, to];
      } catch { /* said at the top of the page */ }
      this.pending = null;
    }
    this.fetched();
  }

  // Null while nothing is known of that moment: the window at hand may be that of another one.
  at(t, trail) {
    const data = this.data;
    if (!data || t < data.from_s || t > data.to_s) return null;
    const online = new Set(data.online);
    const p = data.presence;
    for (let i = 0; p.node && i < p.node.length && p.simulated_s[i] <= t; i++) if (p.online[i]) online.add(p.node[i]); else online.delete(p.node[i]);
    const round = current(data.rounds, t);
    const training = new Map(), sample = new Set(), used = new Set(), hit = new Map();
    const tr = data.trainings, faults = data.faults;
    for (let i = 0; faults.node && i < faults.node.length; i++) if (faults.simulated_s[i] <= t && t < faults.until_s[i]) hit.set(faults.node[i], faults.kind[i]);
    for (let i = 0; i < tr.count; i++) {
      if (tr.began_s[i] <= t && t < tr.simulated_s[i]) training.set(tr.node[i], { round: tr.round[i], began_s: tr.began_s[i], ends_s: tr.simulated_s[i] });
      if (round.number !== null && tr.round[i] === round.number && tr.began_s[i] >= round.since_s - 1e-3) sample.add(tr.node[i]);
      if (tr.node[i] === round.pusher && tr.round[i] === round.number - 1 && tr.completed[i] && tr.simulated_s[i] <= round.since_s) used.add(tr.node[i]);
    }
    const moving = [];
    const f = data.transfers;
    for (let i = 0; i < f.count; i++) {
      if (f.kind[i] === "train" && f.round[i] === round.number) sample.add(f.destination[i]);
      if (f.kind[i] !== "train" && !f.cut[i] && f.round[i] === round.number && f.destination[i] === round.pusher && f.simulated_s[i] <= round.since_s) used.add(f.source[i]);
      if (f.began_s[i] > t || f.simulated_s[i] < t - trail) continue;
      const span = f.simulated_s[i] - f.began_s[i] || 1e-6;
      moving.push({ source: f.source[i], destination: f.destination[i], kind: f.kind[i], round: f.round[i], cut: f.cut[i],
        share: f.progress?.[i] ?? Math.min(1, (t - f.began_s[i]) / span), age: Math.max(0, t - f.simulated_s[i]) / trail });
    }
    if (round.number === null) for (const node of training.keys()) sample.add(node);
    return { t, online, training, sample: [...sample].sort((a, b) => a - b), used, hit, moving, ...round, thinned: data.thinned };
  }
}

function index(data) {
  for (const name of ["transfers", "trainings"]) data[name].count = (data[name].simulated_s || []).length;
  return data;
}

// The round under way: who completed the last one, and who will complete this one.
function current(rounds, t) {
  const found = { number: null, since_s: 0, pusher: null, collector: null, models: 0, participants: 0, twins: [] };
  for (let i = 0; rounds.round && i < rounds.round.length; i++) {
    if (rounds.simulated_s[i] <= t) {
      if (found.number === null || rounds.round[i] > found.number) Object.assign(found, { number: rounds.round[i], since_s: rounds.simulated_s[i], pusher: rounds.aggregator[i], models: rounds.models[i], participants: rounds.participants[i], twins: [] });
      else if (rounds.round[i] === found.number && rounds.aggregator[i] !== found.pusher) found.twins.push(rounds.aggregator[i]);
    } else if (found.number === null || rounds.round[i] > found.number) {
      found.collector = rounds.aggregator[i];
      found.until_s = rounds.simulated_s[i];
      break;
    }
  }
  return found;
}
