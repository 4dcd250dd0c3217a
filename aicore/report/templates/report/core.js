const data = JSON.parse(document.getElementById("data").textContent);
const { nodes, texts } = data.graph;
const $ = (id) => document.getElementById(id);

// ---- elements and texts

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function timeText(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds >= 1) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds >= 1e-3) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  return `${Number((seconds * 1e6).toPrecision(3))} µs`;
}

function bytesText(count) {
  for (const [unit, scale] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (count >= scale) return `${(count / scale).toFixed(1)} ${unit}`;
  }
  return `${count} B`;
}

function shareText(share) {
  return share === null || share === undefined ? "" : `${Number((100 * share).toPrecision(3))} %`;
}

function rateText(amount, seconds) {
  return amount && seconds ? String(Number((amount / seconds / 1e9).toPrecision(3))) : "";
}

function counted(count, one, many) {
  return `${count} ${count === 1 ? one : many}`;
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

const SHOWN = 200; // lines of a table that are made at once; more follow when one scrolls to them

// A table; columns are {heading, text(row), key(row), number, title, node(row)}; clicking a heading sorts.
function tableOf(columns, rows, { sorted = null, chosen = () => {}, open = null, label = "" } = {}) {
  const made = element("table");
  made.ariaLabel = label;
  const head = made.createTHead().insertRow();
  const body = made.createTBody();
  let order = { column: sorted, down: true };
  for (const column of columns) {
    const cell = element("th", "", column.number ? "number" : "");
    cell.scope = "col";
    cell.ariaSort = column === columns[sorted] ? "descending" : "none";
    const button = element("button", column.heading);
    button.type = "button";
    if (column.title) button.title = column.title;
    button.addEventListener("click", () => {
      const index = columns.indexOf(column);
      order = { column: index, down: order.column === index ? !order.down : !!column.number };
      for (const other of head.cells) other.ariaSort = "none";
      cell.ariaSort = order.down ? "descending" : "ascending";
      fill();
    });
    cell.append(button);
    head.append(cell);
  }
  function compared(a, b) {
    const column = columns[order.column];
    const [x, y] = [column.key ? column.key(a) : column.text(a), column.key ? column.key(b) : column.text(b)];
    const gap = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : (x ?? -1) - (y ?? -1);
    return order.down ? -gap : gap;
  }
  let shown = [];
  let count = 0;
  const reached = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && grow());
  function fill() {
    shown = order.column === null ? rows : [...rows].sort(compared);
    body.replaceChildren();
    count = 0;
    grow();
    if (body.rows.length) body.rows[0].tabIndex = 0;
  }
  function grow() {
    reached.disconnect();
    body.append(...shown.slice(count, count + SHOWN).map(lineOf));
    count = Math.min(count + SHOWN, shown.length);
    if (count < shown.length) reached.observe(body.lastChild);
  }
  function lineOf(row) {
    const line = element("tr");
    line.tabIndex = -1;
    columns.forEach((column, i) => {
      const cell = element(i ? "td" : "th", "", column.number ? "number" : column.wide ? "wide" : "");
      if (!i) cell.scope = "row";
      cell.dataset.label = column.heading;
      const inside = column.node ? column.node(row) : null;
      if (inside) cell.append(inside);
      else cell.textContent = column.text(row);
      line.append(cell);
    });
    const act = () => (open ? toggle(line, row) : chosen(row, line));
    line.addEventListener("click", act);
    line.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === line) act();
    });
    return line;
  }
  function toggle(line, row) {
    if (line.nextSibling?.className === "more") {
      line.nextSibling.remove();
      line.ariaExpanded = "false";
      return;
    }
    const more = element("tr", "", "more");
    const cell = element("td");
    cell.colSpan = columns.length;
    cell.append(open(row));
    more.append(cell);
    line.after(more);
    line.ariaExpanded = "true";
  }
  body.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const line = event.target.closest("tr");
    if (!step || !line) return;
    let next = line;
    do next = step > 0 ? next.nextSibling : next.previousSibling;
    while (next && next.className === "more");
    if (next) next.focus();
    event.preventDefault();
  });
  fill();
  return made;
}

// ---- colours

const PALETTE = ["blue", "orange", "green", "red", "violet", "brown", "pink", "olive", "cyan", "grey"];
const tones = new Map();

// The same op has the same colour everywhere; those that take most time come first.
function toneOf(op) {
  if (!tones.has(op)) tones.set(op, `var(--${PALETTE[tones.size % PALETTE.length]})`);
  return tones.get(op);
}

function rememberTones() {
  const weight = d3.rollup(nodes, (some) => d3.sum(some, (n) => (n.measured ? n.measured.seconds : 1e-9)), (n) => n.op);
  for (const [op] of [...weight].sort((a, b) => b[1] - a[1])) toneOf(op);
}

// ---- a hint at the pointer

function showHint(event, text) {
  const hint = $("hint");
  hint.textContent = text;
  hint.hidden = false;
  const { width, height } = hint.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - width - 8);
  const y = event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18;
  hint.style.transform = `translate(${Math.max(x, 4)}px, ${y}px)`;
}

function hideHint() {
  $("hint").hidden = true;
}

// ---- parts of the report: each is drawn when it is first shown

const panels = {};
const drawn = new Set();

function showPanel(name, focus = false) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const active = tab.getAttribute("aria-controls") === name;
    tab.ariaSelected = String(active);
    tab.tabIndex = active ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !active;
    if (active) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (active && focus) tab.focus();
  }
  hideHint();
  if (!drawn.has(name)) {
    drawn.add(name);
    panels[name].draw();
  } else if (panels[name].shown) panels[name].shown();
}

function currentPanel() {
  return document.querySelector("[role=tab][aria-selected=true]").getAttribute("aria-controls");
}
