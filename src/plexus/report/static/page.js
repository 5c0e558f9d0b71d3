"use strict";
// Three themes in turn: as the system has it, light, dark. The choice is kept where the browser allows it.
(() => {
  const order = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  const kept = () => { try { return localStorage.getItem("plexus-theme"); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem("plexus-theme", theme); } catch { /* a file */ } };
  const show = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" }[theme];
    button.setAttribute("aria-label", `Theme: ${theme}`);
  };
  let theme = order.includes(kept()) ? kept() : "auto";
  show(theme);
  button.addEventListener("click", () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    show(theme);
    keep(theme);
  });
  // What is folded would be missing on paper.
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
  // On a phone the contents would fill the first screen.
  if (matchMedia("(max-width: 72rem)").matches) document.querySelector("nav details").open = false;
})();
