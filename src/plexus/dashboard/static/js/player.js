// The moment that is shown: a slider, a play button, a speed. Others ask to be told of changes.
import { h, replace, select } from "./dom.js";
import * as f from "./format.js";

const SPEEDS = [[1, "1×"], [10, "10×"], [60, "60×"], [300, "300×"], [1200, "1200×"]];
const PLAY = "M4 2.500v13l11-6.500z", PAUSE = "M4 2.500h3.600v13H4zM10.400 2.500H14v13h-3.600z";

export class Player {
  constructor({ until, live, at, unit, speed = 60, spans = [] }) {
    this.spans = spans;
    this.until = until; this.t = at ?? until; this.follows = live; this.live = live;
    this.isPlaying = false;
    this.speed = speed;
    this.told = [];
    this.icon = h("path", { d: PLAY });
    this.button = h("button", { type: "button", class: "play primary", "aria-label": "Play", title: "Play (space)", onclick: () => this.toggle() }, h("svg", { viewBox: "0 0 18 18", "aria-hidden": "true" }, this.icon));
    this.slider = h("input", { type: "range", min: 0, max: 1, step: "any", "aria-label": unit, oninput: () => this.seek(Number(this.slider.value)), onkeydown: (event) => this.step(event) });
    this.when = h("output", { class: "when", "aria-live": "off" });
    this.follow = h("button", { type: "button", onclick: () => { this.follows = true; this.stop(); this.seek(this.until, true); } }, "Now");
    this.track = h("div", { class: "spans", hidden: !spans.length });
    this.element = h("div", { class: "player" }, this.button, h("div", { class: "time" }, this.slider, this.track),
      h("div", { class: "tools" }, this.when, select("Speed of play", SPEEDS, speed, (value) => { this.speed = Number(value); }), this.follow));
    this.onkey = (event) => {
      if (event.key === " " && !event.target.closest("input, button, select, a, summary, textarea")) { event.preventDefault(); this.toggle(); }
    };
    document.addEventListener("keydown", this.onkey);
    this.show();
  }

  get perSecond() { return this.isPlaying ? this.speed : 0; }
  onmoment(tell) { this.told.push(tell); }

  step(event) {
    const jump = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -20, PageUp: 20 }[event.key];
    if (!jump) return;
    event.preventDefault();
    this.seek(this.t + jump * Math.max(10, this.until / 500));
  }

  seek(t, follows = false) {
    this.t = Math.min(this.until, Math.max(0, t));
    this.follows = follows;
    this.show();
    for (const tell of this.told) tell(this.t);
  }

  extend(until, live) {
    this.until = until; this.live = live;
    if (this.follows) this.seek(until, live);
    else this.show();
  }

  toggle() { if (this.isPlaying) this.stop(); else this.start(); }

  start() {
    if (this.t >= this.until - 1) this.t = 0;
    this.isPlaying = true; this.follows = false;
    let last = null;
    const frame = (now) => {
      if (!this.isPlaying) return;
      if (last !== null) this.seek(this.t + Math.min(0.2, (now - last) / 1000) * this.speed);
      last = now;
      if (this.t >= this.until) this.stop();
      else this.request = requestAnimationFrame(frame);
    };
    this.request = requestAnimationFrame(frame);
    this.show();
  }

  stop() {
    this.isPlaying = false;
    cancelAnimationFrame(this.request);
    this.show();
    for (const tell of this.told) tell(this.t);
  }

  // Under the slider: when something went wrong on purpose.
  showSpans() {
    replace(this.track, this.spans.filter((span) => span.from < this.until).map((span) => {
      const bar = h("span", { title: `${span.label}, ${f.clock(span.from)} to ${f.clock(span.to)}` });
      bar.style.left = `${(100 * span.from) / this.until}%`;
      bar.style.width = `${(100 * (Math.min(span.to, this.until) - span.from)) / this.until}%`;
      bar.style.background = `var(--${span.colour})`;
      return bar;
    }));
  }

  show() {
    this.showSpans();
    this.slider.max = this.until;
    this.slider.value = this.t;
    this.slider.setAttribute("aria-valuetext", f.clock(this.t));
    this.when.textContent = this.isPlaying ? `replaying ${f.pair(this.t, this.until)}` : `${f.clock(this.t)} / ${f.clock(this.until)}`;
    this.icon.setAttribute("d", this.isPlaying ? PAUSE : PLAY);
    this.button.setAttribute("aria-label", this.isPlaying ? "Pause" : "Play");
    this.follow.hidden = !this.live;
    this.follow.disabled = this.follows;
  }

  close() { this.isPlaying = false; cancelAnimationFrame(this.request); document.removeEventListener("keydown", this.onkey); }
}
