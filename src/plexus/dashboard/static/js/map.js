// The world with the nodes in it, and what they are doing at one moment.
import * as api from "./api.js";
import { colour, h, replace } from "./dom.js";
import { onMap, positions, SHAPE } from "./places.js";

const LEGEND = [["sw-offline", "offline"], ["sw-online", "online"], ["sw-training", "training"], ["ring", "aggregator"]];
const USED = ["sw-used", "in this round's model"], ATTACKER = ["sw-attacker", "attacker"], HIT = ["sw-hit", "hit by a fault"], FORK = ["ring sw-fork", "fork"];
const LINES = [["sw-transfer", "model to train"], ["sw-aggregation", "trained model"], ["sw-cut", "cut"]];
let coast = null;

export class WorldMap {
  constructor({ nodes, count, name, open, hasRounds, attackers, hasFaults }) {
    Object.assign(this, { nodes, count, name, open, attackers });
    const marks = [...(hasRounds ? [...LEGEND, USED, FORK] : LEGEND.slice(0, 3)), ...(Object.keys(attackers).length ? [ATTACKER] : []), ...(hasFaults ? [HIT] : [])];
    this.isWorld = Boolean(nodes.places && nodes.places.latitude.some((v) => v !== null));
    this.canvas = h("canvas", { role: "img" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.element = h("div", { class: "map-box" }, this.canvas, this.tip, h("ul", { class: "map-legend", "aria-label": "Legend" },
      marks.map(([c, text]) => h("li", { class: "key" }, h("i", { class: c }), text)),
      (hasRounds ? LINES : [["sw-transfer", "model"], LINES[2]]).map(([c, text]) => h("li", { class: "key" }, h("i", { class: `line ${c}` }), text))));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => { const node = this.nearest(event); if (node !== null) this.open(node); });
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.element);
    this.ontheme = () => { this.backdrop = null; this.palette = null; this.draw(this.moment); };
    document.addEventListener("theme", this.ontheme);
    if (this.isWorld && !coast) api.land().then((rings) => { coast = rings; this.backdrop = null; this.draw(this.moment); }).catch(() => {});
  }

  resize() {
    const width = Math.floor(this.element.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    this.height = Math.round(Math.min(620, Math.max(200, width / (this.isWorld ? SHAPE : 2.2))));
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = width * this.ratio;
    this.canvas.height = this.height * this.ratio;
    this.canvas.style.height = `${this.height}px`;
    this.where = positions(this.nodes, this.count, width, this.height);
    this.dot = this.isWorld ? Math.max(1.7, Math.min(4.2, 4.6 - Math.log10(Math.max(10, this.count)) * 0.75)) * (width < 560 ? 0.8 : 1) : Math.max(3, 8 - this.count / 20);
    this.backdrop = null;
    this.draw(this.moment);
  }

  draw(moment) {
    this.moment = moment;
    if (!this.width) return;
    const draw = this.canvas.getContext("2d");
    this.palette ??= Object.fromEntries(["sea", "land", "coast", "grid", "offline", "online", "training", "transfer", "aggregation", "sampling", "bad", "card", "text"].map((name) => [name, colour(name)]));
    this.backdrop ??= this.paintBackdrop();
    draw.setTransform(1, 0, 0, 1, 0, 0);
    draw.drawImage(this.backdrop, 0, 0);
    draw.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    if (!moment) return;
    this.drawNodes(draw, moment);
    this.drawNames(draw);
    this.drawSample(draw, moment);
    this.drawMarks(draw, moment);
    for (const each of moment.moving) this.drawTransfer(draw, each);
    this.drawAggregators(draw, moment);
    this.canvas.setAttribute("aria-label", this.words(moment));
    if (!this.isDrawn) { this.isDrawn = true; performance.mark("plexus-map"); }
  }

  paintBackdrop() {
    const layer = document.createElement("canvas"), c = this.palette;
    layer.width = this.canvas.width; layer.height = this.canvas.height;
    const draw = layer.getContext("2d");
    draw.scale(this.ratio, this.ratio);
    draw.fillStyle = c.sea;
    draw.fillRect(0, 0, this.width, this.height);
    if (!this.isWorld) return layer;
    const point = onMap(this.width, this.height);
    draw.strokeStyle = c.grid; draw.lineWidth = 1;
    for (let lon = -180; lon <= 180; lon += 30) { draw.beginPath(); for (let lat = -57; lat <= 84; lat += 3) draw.lineTo(...point(lon, lat)); draw.stroke(); }
    for (let lat = -30; lat <= 60; lat += 30) { draw.beginPath(); for (let lon = -180; lon <= 180; lon += 6) draw.lineTo(...point(lon, lat)); draw.stroke(); }
    draw.fillStyle = c.land; draw.strokeStyle = c.coast; draw.lineWidth = 0.8; draw.lineJoin = "round";
    for (const ring of coast || []) {
      draw.beginPath();
      for (let i = 0; i < ring.length; i += 2) draw.lineTo(...point(ring[i] / 10, ring[i + 1] / 10));
      draw.closePath(); draw.fill(); draw.stroke();
    }
    return layer;
  }

  circle(draw, node, radius) { draw.beginPath(); draw.arc(this.where[node][0], this.where[node][1], radius, 0, 7); }

  drawNodes(draw, { online }) {
    const c = this.palette;
    for (const [isOn, fill, alpha, size] of [[false, c.offline, 0.75, 0.72], [true, c.online, 1, 1]]) {
      draw.fillStyle = fill; draw.globalAlpha = alpha;
      for (let node = 0; node < this.count; node++) if (this.where[node] && online.has(node) === isOn) { this.circle(draw, node, this.dot * size); draw.fill(); }
    }
    draw.globalAlpha = 1;
  }

  // Where there is no world to recognise, names say who is who.
  drawNames(draw) {
    if (this.isWorld || this.count > 40) return;
    draw.fillStyle = colour("muted"); draw.font = "12px system-ui, sans-serif"; draw.textAlign = "center";
    for (let node = 0; node < this.count; node++) draw.fillText(this.name(node), this.where[node][0], this.where[node][1] + this.dot + 20);
  }

  drawSample(draw, { sample, training, pusher }) {
    const c = this.palette;
    draw.lineWidth = 1.1; draw.strokeStyle = c.training; draw.globalAlpha = 0.3; draw.setLineDash([2, 4]);
    if (pusher !== null && this.where[pusher]) for (const node of sample) if (this.where[node] && node !== pusher) { this.arc(draw, pusher, node, 1); draw.stroke(); }
    draw.setLineDash([]);
    for (const node of new Set([...sample, ...training.keys()])) {
      if (!this.where[node]) continue;
      draw.globalAlpha = 0.22; draw.fillStyle = c.training; this.circle(draw, node, this.dot + 5.5); if (training.has(node)) draw.fill();
      draw.globalAlpha = 1; draw.lineWidth = 1.6; draw.strokeStyle = c.training; draw.fillStyle = training.has(node) ? c.training : c.card;
      this.circle(draw, node, this.dot + 1.3); draw.fill(); draw.stroke();
    }
  }

  // Whose work is in the model, who attacks, who is hit by a fault.
  drawMarks(draw, { used, hit, training }) {
    const c = this.palette;
    draw.fillStyle = c.aggregation;
    for (const node of used) if (this.where[node]) { this.circle(draw, node, this.dot * (training.has(node) ? 0.6 : 1)); draw.fill(); }
    draw.strokeStyle = c.bad; draw.lineWidth = 1.5;
    for (const node of Object.keys(this.attackers)) if (this.where[node]) { const [x, y] = this.where[node], r = this.dot + 2.5; draw.strokeRect(x - r, y - r, 2 * r, 2 * r); }
    draw.lineWidth = 2;
    for (const node of hit.keys()) if (this.where[node]) {
      const [x, y] = this.where[node], r = this.dot + 2.5;
      draw.beginPath(); draw.moveTo(x - r, y - r); draw.lineTo(x + r, y + r); draw.moveTo(x - r, y + r); draw.lineTo(x + r, y - r); draw.stroke();
    }
  }

  drawAggregators(draw, { pusher, collector, twins }) {
    for (const [node, dash, ink] of [...twins.map((twin) => [twin, [], "bad"]), [collector, [3, 2.5], "aggregation"], [pusher, [], "aggregation"]]) {
      if (node === null || node === undefined || !this.where[node]) continue;
      draw.strokeStyle = this.palette[ink]; draw.lineWidth = 2.6; draw.setLineDash(dash);
      this.circle(draw, node, this.dot + 5.5); draw.stroke();
    }
    draw.setLineDash([]);
  }

  bend(source, destination) {
    const [x0, y0] = this.where[source], [x1, y1] = this.where[destination];
    const length = Math.hypot(x1 - x0, y1 - y0), lift = Math.min(70, length * 0.22);
    return [(x0 + x1) / 2 + ((y1 - y0) / (length || 1)) * lift * 0.35, (y0 + y1) / 2 - lift];
  }

  arc(draw, source, destination, share) {
    const [x0, y0] = this.where[source], [x1, y1] = this.where[destination], [cx, cy] = this.bend(source, destination);
    const mx = x0 + (cx - x0) * share, my = y0 + (cy - y0) * share, nx = cx + (x1 - cx) * share, ny = cy + (y1 - cy) * share;
    const end = [mx + (nx - mx) * share, my + (ny - my) * share];
    draw.beginPath(); draw.moveTo(x0, y0); draw.quadraticCurveTo(mx, my, ...end);
    return end;
  }

  drawTransfer(draw, each) {
    if (!this.where[each.source] || !this.where[each.destination]) return;
    const c = this.palette, ink = each.cut && each.age > 0 ? c.bad : ["aggregate", "late"].includes(each.kind) ? c.aggregation : c.transfer;
    const fade = each.age > 0 ? 0.75 * (1 - each.age) : 1;
    draw.strokeStyle = ink; draw.lineWidth = 1.9; draw.globalAlpha = 0.25 * fade;
    this.arc(draw, each.source, each.destination, 1); draw.stroke();
    draw.globalAlpha = 0.95 * fade;
    const [x, y] = this.arc(draw, each.source, each.destination, each.share); draw.stroke();
    if (each.age === 0) { draw.fillStyle = ink; draw.beginPath(); draw.arc(x, y, 3.2, 0, 7); draw.fill(); }
    draw.globalAlpha = 1;
  }

  words({ online, training, sample, moving, number, pusher, twins, hit }) {
    const under = moving.filter((each) => each.age === 0).length;
    const who = pusher === null ? "" : `, aggregated by ${[pusher, ...twins].map((node) => this.name(node)).join(" and by ")}`;
    const wrong = hit.size ? ` ${hit.size} hit by a fault.` : "";
    return `${online.size} of ${this.count} nodes online. ${number === null ? "" : `Round ${number}${who}. `}${sample.length} nodes in the sample, ${training.size} training, ${under} models on their way.${wrong}`;
  }

  nearest(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = event.pointerType === "touch" ? 22 : 11;
    for (let node = 0; node < this.count; node++) {
      const at = this.where?.[node];
      if (at) { const d = Math.hypot(at[0] - x, at[1] - y); if (d < least) { least = d; best = node; } }
    }
    return best;
  }

  hover(event) {
    const node = this.nearest(event);
    this.tip.hidden = node === null;
    this.canvas.style.cursor = node === null ? "default" : "pointer";
    if (node === null || !this.moment) return;
    const m = this.moment, [x, y] = this.where[node];
    const state = !m.online.has(node) ? "offline" : m.training.has(node) ? `training in round ${m.training.get(node).round}` : node === m.pusher ? "aggregator" : m.sample.includes(node) ? "in the sample" : "online";
    const more = [m.used.has(node) ? "its work is in this model" : null, m.twins.includes(node) ? "made the same round" : null, m.hit.get(node), this.attackers[node] && `attacker: ${this.attackers[node]}`];
    replace(this.tip, h("b", {}, this.name(node)), [state, ...more].filter(Boolean).join("; "));
    this.tip.style.left = `${Math.min(x + 14, this.width - 170)}px`;
    this.tip.style.top = `${Math.max(6, Math.min(y - 12, this.height - 60))}px`;
  }

  close() { this.watcher.disconnect(); document.removeEventListener("theme", this.ontheme); }
}
