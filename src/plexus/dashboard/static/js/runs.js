// The list of everything there is to look at.
import * as api from "./api.js";
import { h, replace, colour } from "./dom.js";
import * as f from "./format.js";

const EVERY_MS = 4000;

export async function showRuns({ main, place, isCurrent }) {
  place("Runs");
  const chosen = new Set();
  const body = h("tbody");
  const where = h("p", { class: "meta" });
  const go = h("a", { class: "primary" });
  const bar = h("div", { class: "card compare-bar" }, h("span", {}), go);
  const table = h("div", { class: "card" }, h("div", { class: "scroll" }, h("table", { class: "runs" },
    h("thead", {}, h("tr", {}, h("th", {}, h("span", { class: "visually-hidden" }, "Compare")), h("th", {}, "Run"), h("th", {}, "State"),
      h("th", { class: "number" }, "Metric"), h("th", { class: "wide" }, h("span", { class: "visually-hidden" }, "Its course")),
      h("th", { class: "number wide" }, "Rounds"), h("th", { class: "number wide" }, "Time"), h("th", { class: "wide" }, "Started"))), body)));
  let seen = "";

  function showChosen() {
    bar.hidden = chosen.size === 0;
    bar.firstChild.textContent = chosen.size < 2 ? "Choose another run to compare with" : `${chosen.size} runs chosen`;
    go.textContent = "Compare";
    go.hidden = chosen.size < 2;
    go.setAttribute("href", `#/compare?${[...chosen].map((id) => `run=${encodeURIComponent(id)}`).join("&")}`);
  }

  async function refresh() {
    const { root, runs } = await api.runs();
    if (!isCurrent()) return;
    const text = JSON.stringify(runs);
    if (text === seen) return;
    seen = text;
    where.textContent = root ? `in ${root}` : "live nodes, by their addresses";
    if (!runs.length) {
      replace(main, head, h("div", { class: "card empty" }, "No run here yet. ", h("code", {}, "plexus run experiments/quickstart.toml"), " makes one."));
      return;
    }
    const started = (run) => (typeof run.started === "number" ? run.started * 1000 : Date.parse(run.started || 0) || 0);
    runs.sort((a, b) => (b.status === "running") - (a.status === "running") || started(b) - started(a));
    replace(body, runs.map((run) => row(run, chosen, showChosen)));
    if (!table.isConnected) replace(main, head, table, bar);
    for (const canvas of body.querySelectorAll("canvas")) spark(canvas);
  }

  const head = h("div", { class: "head" }, h("h1", {}, "Runs"), where);
  head.style.marginBottom = "16px";
  showChosen();
  await refresh();
  const redraw = () => body.querySelectorAll("canvas").forEach(spark);
  document.addEventListener("theme", redraw);
  const timer = setInterval(() => refresh().catch(() => {}), EVERY_MS);
  return () => { clearInterval(timer); document.removeEventListener("theme", redraw); };
}

function row(run, chosen, changed) {
  const href = `#/run/${encodeURIComponent(run.id)}`;
  if (run.error) {
    return h("tr", {}, h("td", {}), h("td", { class: "name" }, run.name), h("td", {}, h("span", { class: "pill damaged" }, "damaged")), h("td", { colspan: 5 }, run.error));
  }
  const box = h("input", { type: "checkbox", "aria-label": `Compare ${run.id}`, onchange: () => { if (box.checked) chosen.add(run.id); else chosen.delete(run.id); changed(); } });
  box.checked = chosen.has(run.id);
  const metric = run.metric || {};
  const share = run.until_s ? ` of ${f.hours(run.until_s)}` : "";
  const canvas = h("canvas", { role: "img", "aria-label": `${f.metricName(metric.name)} over time` });
  canvas.values = run.spark || [];
  const about = [run.kind === "live" ? "live" : null, run.protocol, run.task, `${f.whole(run.nodes)} nodes`, run.seed === null || run.seed === undefined ? null : `seed ${run.seed}`, ...(run.differs || [])].filter(Boolean).join(" · ");
  return h("tr", {}, h("td", {}, box),
    h("td", {}, h("a", { class: "name", href }, run.id), h("span", { class: "sub" }, about)),
    h("td", {}, h("span", { class: `pill ${run.status}` }, f.words[run.status] || run.status)),
    h("td", { class: "number" }, h("b", {}, f.metric(metric.name, metric.best)), h("span", { class: "sub" }, metric.name ? `best ${f.metricName(metric.name)}` : "")),
    h("td", { class: "wide" }, canvas),
    h("td", { class: "number wide" }, f.whole(run.rounds)),
    h("td", { class: "number wide" }, f.hours(run.reached_s) + share),
    h("td", { class: "wide" }, f.date(run.started)));
}

function spark(canvas) {
  const values = canvas.values.filter((v) => v !== null);
  if (values.length < 2) return;
  const ratio = window.devicePixelRatio || 1, width = 120, height = 30;
  canvas.width = width * ratio; canvas.height = height * ratio;
  const draw = canvas.getContext("2d");
  draw.scale(ratio, ratio);
  const low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
  draw.beginPath();
  values.forEach((v, i) => draw.lineTo(2 + (i / (values.length - 1)) * (width - 4), height - 3 - ((v - low) / span) * (height - 6)));
  draw.strokeStyle = colour("accent"); draw.lineWidth = 1.6; draw.lineJoin = "round"; draw.stroke();
}
