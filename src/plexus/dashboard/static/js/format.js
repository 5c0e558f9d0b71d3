// Quantities as people read them.
const PERCENT = new Set(["accuracy"]);
const missing = (value) => value === null || value === undefined || Number.isNaN(value);

export function metric(name, value) {
  if (missing(value)) return "–";
  return PERCENT.has(name) ? `${(100 * value).toFixed(1)} %` : Number(value).toPrecision(4).replace(/\.?0+$/, "");
}
export const metricName = (name) => (["mse", "rmse", "mae", "auc"].includes(name) ? name.toUpperCase() : name || "metric");
export const isPercent = (name) => PERCENT.has(name);

export function bytes(count) {
  if (missing(count)) return "–";
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (count < 999.5 || unit === "TB") return unit === "B" || count >= 100 ? `${count.toFixed(0)} ${unit}` : `${Number(count.toPrecision(3))} ${unit}`;
    count /= 1000;
  }
  return "";
}
export const whole = (count) => (missing(count) ? "–" : Math.round(count).toLocaleString("en-US"));

export const count = (number, noun) => `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;

export function seconds(value) {
  if (missing(value)) return "–";
  if (value >= 5400) return `${(value / 3600).toFixed(1)} h`;
  if (value >= 90) return `${(value / 60).toFixed(1)} min`;
  if (value >= 10) return `${value.toFixed(0)} s`;
  return value >= 1 ? `${value.toFixed(1)} s` : `${(1000 * value).toFixed(0)} ms`;
}
export function hours(value) {
  if (missing(value)) return "–";
  if (value > 0 && value < 360) return seconds(value);
  const h = value / 3600;
  return `${h >= 100 ? whole(h) : h.toFixed(1)} h`;
}
export function clock(value) {
  if (missing(value)) return "–";
  const s = Math.max(0, Math.floor(value));
  const pad = (n) => String(n).padStart(2, "0");
  return `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}`;
}
// `41.2 of 50 h`
export function pair(done, all) {
  const [s, unit] = all >= 3600 ? [3600, "h"] : all >= 300 ? [60, "min"] : [1, "s"];
  return `${(done / s).toFixed(1)} of ${Number((all / s).toFixed(1))} ${unit}`;
}
export function date(text) {
  if (!text) return "";
  const at = typeof text === "number" ? new Date(text * 1000) : new Date(text);
  return Number.isNaN(at.getTime()) ? "" : at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}
export const words = { running: "running", finished: "finished", interrupted: "interrupted", stopped: "stopped early" };
