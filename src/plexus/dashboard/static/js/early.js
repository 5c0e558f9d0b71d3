// What cannot wait for the modules. The theme comes before the first paint, so that nothing flashes.
(function () {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  function chosen() {
    try { return window.localStorage.getItem("plexus-theme"); } catch { return null; }
  }
  function apply() {
    const theme = chosen() || (system.matches ? "dark" : "light");
    if (root.dataset.theme !== theme) {
      root.dataset.theme = theme;
      document.dispatchEvent(new CustomEvent("theme"));
    }
  }
  window.plexusTheme = {
    toggle() {
      const next = root.dataset.theme === "dark" ? "light" : "dark";
      try { window.localStorage.setItem("plexus-theme", next); } catch { root.dataset.theme = next; }
      apply();
    },
  };
  system.addEventListener("change", apply);
  apply();
  // The largest answer is asked for while the other scripts are still on their way.
  const run = window.location.hash.match(/^#\/run\/([^/?]+)/);
  if (run) {
    const path = `/api/run?id=${run[1].replace(/%20/g, "+")}`;
    const answer = fetch(path);
    answer.catch(() => {});
    window.plexusEarly = { path, answer };
  }
})();
