// Curves and stacked areas on uPlot, in the colours of the theme, with a line at the moment that is shown.
import { colour, h } from "./dom.js";

const charts = new Set();
document.addEventListener("theme", () => charts.forEach((chart) => chart.rebuild()));

class Chart {
  // `build()` gives { series, data, axes, scales } in terms of uPlot, without anything that depends on size.
  constructor(label, build, { height = 250, pick = null } = {}) {
    this.element = h("figure", { class: "chart", role: "group", "aria-label": label });
    this.element.style.margin = "0";
    this.build = build;
    this.height = height;
    this.pick = pick;
    this.at = null;
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.element);
    charts.add(this);
  }

  resize() {
    const width = Math.floor(this.element.clientWidth);
    if (!width || !this.element.isConnected) return;
    if (!this.plot) this.rebuild();
    else if (width !== this.plot.width) { this.plot.setSize({ width, height: this.height }); this.mark(this.at); }
  }

  rebuild() {
    const width = Math.floor(this.element.clientWidth);
    if (!width) return;
    const zoom = this.plot && this.isZoomed ? { ...this.plot.scales.x } : null;
    if (this.plot) this.plot.destroy();
    const { data, spans, ...parts } = this.build();
    this.element.replaceChildren();
    this.plot = new uPlot({
      width, height: this.height, padding: [12, 14, 0, 4],
      legend: { live: true }, cursor: { points: { size: 7 }, drag: { x: true, y: false } },
      hooks: { setSelect: [() => { this.isZoomed = true; }], drawClear: [(plot) => shade(plot, spans || [])] }, ...parts,
    }, data, this.element);
    this.element.append(keys(spans || []));
    this.line = h("div", { class: "moment-line", "aria-hidden": "true" });
    Object.assign(this.line.style, { position: "absolute", top: "0", bottom: "0", left: "0", width: "2px", background: colour("accent"), opacity: ".7", pointerEvents: "none", display: "none" });
    this.plot.over.append(this.line);
    this.listen();
    if (zoom) this.plot.setScale("x", { min: zoom.min, max: zoom.max });
    this.mark(this.at);
  }

  listen() {
    const over = this.plot.over;
    let down = null;
    over.addEventListener("mousedown", (event) => { down = event.clientX; });
    over.addEventListener("click", (event) => {
      if (this.pick && down !== null && Math.abs(event.clientX - down) < 3) this.pick(this.plot.posToVal(event.clientX - over.getBoundingClientRect().left, "x"));
    });
    over.addEventListener("dblclick", () => { this.isZoomed = false; this.mark(this.at); });
  }

  mark(x) {
    this.at = x;
    if (!this.plot || !this.line) return;
    const left = x === null ? -1 : this.plot.valToPos(x, "x");
    const isIn = left >= 0 && left <= this.plot.over.clientWidth;
    this.line.style.display = isIn ? "" : "none";
    if (isIn) this.line.style.transform = `translateX(${left - 1}px)`;
  }

  update() {
    if (!this.plot || this.isZoomed) return;
    this.rebuild();
  }

  close() {
    this.watcher.disconnect();
    charts.delete(this);
    if (this.plot) this.plot.destroy();
  }
}

const FAULT_COLOURS = { partition: "series-2", crash: "bad", "slow-link": "series-5", silence: "series-6" };
export const faultSpans = (run, unit) => (run.faults || []).map((each) => (
  { from: each.from_s / unit.s, to: each.to_s / unit.s, colour: FAULT_COLOURS[each.kind] || "series-6", label: each.words }));

// Spans of time behind the curves: [{ from, to, colour, label }] in units of x, and what they mean.
function shade(plot, spans) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const span of spans) {
    const left = plot.valToPos(span.from, "x", true), right = plot.valToPos(span.to, "x", true);
    ctx.fillStyle = tint(span.colour, 18);
    ctx.fillRect(left, bbox.top, Math.max(1, right - left), bbox.height);
  }
  ctx.restore();
}

function keys(spans) {
  const named = new Map(spans.map((span) => [span.label, span]));
  return h("ul", { class: "keys faults", hidden: !named.size }, [...named.values()].map((span) => {
    const swatch = h("i");
    swatch.style.background = tint(span.colour, 45);
    return h("li", { class: "key" }, swatch, span.label);
  }));
}

// Steps between ticks where there is nothing between 12 and 13.
const WHOLE = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();
const FONT = "12px system-ui, sans-serif";
function axis(label, format, extra = {}) {
  return { stroke: colour("muted"), font: FONT, labelFont: FONT, label, labelSize: label ? 22 : 0, grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), size: 4 }, values: format && ((_, all) => all.map((v) => (v === null ? "" : format(v)))), ...extra };
}

// series: [{ label, values, colour, fill, dash, width, format, points }], all over the same x.
export function lines(label, make, options = {}) {
  return new Chart(label, () => {
    const { x, series, xLabel, yFormat, yWhole, yRange, xFormat, bands, spans } = make();
    const wide = yFormat ? 62 : 52;
    return {
      data: [x, ...series.map((each) => each.values)], spans,
      scales: { x: { time: false }, y: { range: yRange || ((_, low, high) => padded(low, high)) } },
      axes: [axis(xLabel, xFormat, { size: 34 }), axis(null, yFormat, { size: wide, ...(yWhole ? { incrs: WHOLE } : {}) })],
      series: [
        { label: xLabel, value: (_, v) => (v === null ? "–" : (xFormat || tidy)(v)) },
        ...series.map((each) => ({
          label: each.label, stroke: colour(each.colour), width: each.width ?? 2, dash: each.dash, spanGaps: true,
          fill: each.fill ? tint(each.colour, each.fill) : undefined,
          points: { show: each.points ?? each.values.filter((v) => v !== null).length < 40, size: 5, fill: colour(each.colour) },
          value: (_, v) => (v === null || v === undefined ? "–" : (each.format || yFormat || tidy)(v)),
        })),
      ],
      bands: bands && bands.map((band) => ({ ...band, fill: tint(band.colour, 16) })),
    };
  }, options);
}

// Areas on top of each other; the first is at the bottom.
export function stacked(label, make, options = {}) {
  return new Chart(label, () => {
    const { x, series, xLabel, yFormat, xFormat, spans } = make();
    let below = x.map(() => 0);
    const sums = series.map((each) => (below = below.map((b, i) => b + (each.values[i] || 0))));
    const order = series.map((each, i) => ({ each, sum: sums[i] })).reverse();
    return {
      data: [x, ...order.map((o) => o.sum)], spans,
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, high * 1.06 || 1] } },
      axes: [axis(xLabel, xFormat, { size: 34 }), axis(null, yFormat, { size: 62 })],
      series: [
        { label: xLabel, value: (_, v) => (v === null ? "–" : (xFormat || tidy)(v)) },
        ...order.map(({ each }) => ({
          label: each.label, stroke: colour(each.colour), fill: colour(each.colour), width: 0.5, points: { show: false },
          paths: options.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          value: (_, v, s, i) => (i === null || i === undefined ? "–" : (yFormat || tidy)(each.values[i] || 0)),
        })),
      ],
    };
  }, options);
}

const tint = (name, percent) => colour(name) + Math.round(2.55 * percent).toString(16).padStart(2, "0");
const tidy = (v) => (Math.abs(v) >= 100 ? Math.round(v).toLocaleString("en-US") : String(Number(v.toPrecision(3))));
function padded(low, high) {
  if (low === null || high === null) return [0, 1];
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
}
