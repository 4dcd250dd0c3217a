// ---- tabs, keys, theme

const tabs = [...document.querySelectorAll("[role=tab]")];
tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => showPanel(tab.getAttribute("aria-controls")));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) showPanel(tabs[(i + step + tabs.length) % tabs.length].getAttribute("aria-controls"), true);
  });
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const tab = tabs[Number(event.key) - 1];
  if (tab) return showPanel(tab.getAttribute("aria-controls"), true);
  if (panels[currentPanel()].key?.(event.key)) event.preventDefault();
});

const themes = ["", "light", "dark"];
$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const order = isDark ? ["", "light", "dark"] : ["", "dark", "light"];
  const next = order[(order.indexOf(root.dataset.theme ?? "") + 1) % themes.length];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
});

const asked = location.hash.slice(1);
showPanel(asked in panels ? asked : "graph");
performance.mark("interactive");
