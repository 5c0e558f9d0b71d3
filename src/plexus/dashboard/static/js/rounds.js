// Rounds and where their time goes: shares over the whole run, means over time, and the rounds around a moment.
import { card, colour, h, replace } from "./dom.js";
import { faultSpans, stacked } from "./charts.js";
import * as f from "./format.js";

export const PARTS = [["sampling", "sampling"], ["transfer", "transfer"], ["training", "training"], ["aggregation", "aggregation"]];
const ROW = 22, SHOWN = 7;

export function roundsCard(state, pick) {
  const shares = h("div"), hint = "on the way of the last model that each aggregator waited for";
  const gantt = new Gantt(pick);
  const chart = stacked("Mean seconds of a round by phase, over time", () => {
    const p = state.run.phases;
    return {
      x: p.to_s.map((s) => s / state.unit.s), xLabel: state.unit.label, yFormat: f.seconds, spans: faultSpans(state.run, state.unit),
      series: PARTS.map(([name]) => ({ label: name, colour: name, values: p[`${name}_s`] })),
    };
  }, { height: 240, pick: (x) => pick(x * state.unit.s) });
  const show = () => replace(shares, shareBar(state.run.phase_means_s));
  show();
  const element = card("Where a round’s time goes", { note: hint },
    h("div", { class: "body" }, shares, h("div", { class: "two" }, h("div", {}, h("h3", {}, "Over time"), chart.element), h("div", {}, h("h3", {}, "Around the moment shown"), gantt.element))));
  return { element, chart, update: () => { show(); chart.update(); }, moment: (data, t) => { chart.mark(t / state.unit.s); gantt.draw(data, t); }, close: () => { chart.close(); gantt.close(); } };
}

function shareBar(means) {
  const total = PARTS.reduce((sum, [name]) => sum + (means[`${name}_s`] || 0), 0) || 1;
  const bar = h("div", { class: "shares", role: "img", "aria-label": PARTS.map(([name]) => `${name} ${f.seconds(means[`${name}_s`])}`).join(", ") });
  for (const [name] of PARTS) {
    const share = (means[`${name}_s`] || 0) / total;
    const part = h("span", { class: `sw-${name}`, title: name }, share > 0.07 ? `${Math.round(100 * share)} %` : "");
    part.style.flexGrow = String(share);
    part.style.flexBasis = "0";
    bar.append(part);
  }
  return [bar, h("ul", { class: "keys" }, PARTS.map(([name, text]) => h("li", { class: "key" }, h("i", { class: `sw-${name}` }), text, " ", h("b", {}, f.seconds(means[`${name}_s`])))), h("li", { class: "key" }, "a round ", h("b", {}, f.seconds(total))))];
}

class Gantt {
  constructor(pick) {
    this.pick = pick;
    this.canvas = h("canvas", { class: "gantt", role: "img" });
    this.element = h("div", {}, this.canvas);
    this.watcher = new ResizeObserver(() => this.draw(this.data, this.t));
    this.watcher.observe(this.element);
    this.ontheme = () => this.draw(this.data, this.t);
    document.addEventListener("theme", this.ontheme);
    this.canvas.addEventListener("click", (event) => { if (this.toTime) this.pick(this.toTime(event.clientX - this.canvas.getBoundingClientRect().left)); });
  }

  rows(phases, t) {
    const count = (phases.round || []).length;
    let next = 0;
    while (next < count && phases.simulated_s[next] <= t) next++;
    const first = Math.max(0, Math.min(next - Math.floor(SHOWN / 2), count - SHOWN));
    return Array.from({ length: Math.min(SHOWN, count - first) }, (_, i) => first + i);
  }

  draw(data, t) {
    this.data = data; this.t = t;
    const width = this.element.clientWidth;
    if (!width || !data) return;
    const rows = this.rows(data.phases, t), p = data.phases, ratio = window.devicePixelRatio || 1, height = SHOWN * (ROW + 6) + 34;
    this.canvas.width = width * ratio; this.canvas.height = height * ratio; this.canvas.style.height = `${height}px`;
    const draw = this.canvas.getContext("2d");
    draw.scale(ratio, ratio);
    draw.font = "12px system-ui, sans-serif";
    draw.textBaseline = "middle";
    if (!rows.length) { draw.fillStyle = colour("muted"); draw.fillText("No round here.", 4, 20); return; }
    const left = 78, from = Math.min(...rows.map((i) => p.began_s[i])), to = Math.max(...rows.map((i) => p.simulated_s[i])), span = to - from || 1;
    const x = (s) => left + ((s - from) / span) * (width - left - 12);
    this.toTime = (px) => from + ((px - left) / (width - left - 12)) * span;
    rows.forEach((i, row) => {
      const y = 8 + row * (ROW + 6);
      draw.fillStyle = p.began_s[i] <= t && t < p.simulated_s[i] ? colour("text") : colour("muted");
      draw.textAlign = "right"; draw.fillText(`round ${p.round[i]}`, left - 8, y + ROW / 2);
      let at = p.began_s[i];
      for (const [name] of PARTS) {
        const length = p[`${name}_s`][i];
        draw.fillStyle = colour(name);
        draw.fillRect(x(at), y, Math.max(length > 0 ? 1 : 0, x(at + length) - x(at) - 0.5), ROW);
        at += length;
      }
    });
    this.axis(draw, x, from, to, height);
    if (t >= from && t <= to) { draw.fillStyle = colour("accent"); draw.fillRect(x(t) - 1, 2, 2, height - 28); }
    this.canvas.setAttribute("aria-label", rows.map((i) => `round ${p.round[i]}: ${f.seconds(p.simulated_s[i] - p.began_s[i])}`).join("; "));
  }

  axis(draw, x, from, to, height) {
    draw.fillStyle = colour("muted"); draw.textAlign = "center";
    const ticks = Math.max(2, Math.min(5, Math.floor((x(to) - x(from)) / 90)));
    for (let i = 0; i <= ticks; i++) {
      const s = from + ((to - from) * i) / ticks;
      draw.textAlign = i === 0 ? "left" : i === ticks ? "right" : "center";
      draw.fillText(to - from < 20 ? `${s.toFixed(1)} s` : f.clock(s), x(s), height - 12);
    }
  }

  close() { this.watcher.disconnect(); document.removeEventListener("theme", this.ontheme); }
}
