// Which page to show. A page is a function that fills <main> and returns what to do when it is left.
import { h, replace } from "./dom.js";
import { showRuns } from "./runs.js";
import { showRun } from "./run.js";
import { showNode } from "./node.js";
import { showCompare } from "./compare.js";

const main = document.getElementById("page");
const crumbs = document.getElementById("crumbs");
const button = document.getElementById("theme");
let leave = () => {};
let turn = 0;

export function place(title, ...links) {
  document.title = title ? `${title} · Plexus` : "Plexus";
  replace(crumbs, links.map(([text, href]) => [h("span", { "aria-hidden": "true" }, "/"), href ? h("a", { href }, text) : h("span", { "aria-current": "page" }, text)]));
}

function parse(hash) {
  const [path, query] = (hash.replace(/^#/, "") || "/").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query || "") };
}

async function route() {
  const mine = ++turn;
  leave();
  leave = () => {};
  main.setAttribute("aria-busy", "true");
  const { parts, query } = parse(window.location.hash);
  const [what, id, sub, number] = parts;
  const context = { main, place, isCurrent: () => mine === turn };
  try {
    let left;
    if (what === "run" && sub === "node") left = await showNode(context, id, Number(number), query.get("at"));
    else if (what === "run") left = await showRun(context, id);
    else if (what === "compare") left = await showCompare(context, query.getAll("run"));
    else left = await showRuns(context);
    if (mine === turn) leave = left || leave;
    else if (left) left();
  } catch (error) {
    if (mine === turn) {
      place("Error");
      replace(main, h("p", { class: "card error", role: "alert" }, error.message));
    }
  }
  if (mine === turn) {
    main.setAttribute("aria-busy", "false");
    window.scrollTo(0, 0);
  }
}

function label() {
  const dark = document.documentElement.dataset.theme === "dark";
  button.textContent = dark ? "☀ Light" : "☾ Dark";
  button.setAttribute("aria-label", dark ? "Switch to the light theme" : "Switch to the dark theme");
}

button.addEventListener("click", () => window.plexusTheme.toggle());
document.addEventListener("theme", label);
window.addEventListener("hashchange", () => { route(); main.focus({ preventScroll: true }); });
label();
route();
