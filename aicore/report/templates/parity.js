"use strict";
(() => {
  const packed = JSON.parse(document.getElementById("data").textContent);
  const { columns } = packed;
  const absent = new Set(JSON.parse(document.getElementById("matrix").dataset.absent));
  const signs = Object.fromEntries(packed.outcomes.map((outcome, i) => [outcome, packed.signs[i]]));
  const rows = unpack(packed);
  const body = document.querySelector("#matrix > tbody");
  const lines = rows.map(lineOf);
  body.append(...lines);
  const filter = document.getElementById("filter");
  const dtype = document.getElementById("dtype");
  const kind = document.getElementById("kind");
  const order = document.getElementById("order");
  const tools = document.querySelector(".tools");
  const chips = [...document.querySelectorAll(".chip")];
  const buttons = [...document.querySelectorAll("thead button[data-key]")];

  const texts = rows.map((row) => {
    const cells = Object.values(row.cells);
    const said = cells.flatMap((cell) => [cell.outcome, cell.reason, ...cell.kernels]);
    return [row.name, row.dtype, row.kind, ...said].join(" ").toLowerCase();
  });
  const outcomes = rows.map((row) => new Set(Object.values(row.cells).map((cell) => cell.outcome)));

  // ---- the data, the inverse of aicore/report/packing.py

  function unpack({ texts, cells, rows, outcomes }) {
    return rows.map(([name, dtype, kind, places, cases]) => {
      const row = { name: texts[name], dtype: texts[dtype], kind: texts[kind], cells: {} };
      row.cases = cases.map(([id, note, ...verdicts]) => [
        id[0] === "=" ? id.slice(1) : `${row.name}-${row.dtype}${id}`,
        texts[note],
        ...verdicts.map((verdict) => (verdict === null ? null : unpackVerdict(verdict, outcomes))),
      ]);
      places.forEach((place, i) => {
        if (place >= 0) row.cells[columns[i]] = unpackCell(cells[place], row, texts, outcomes);
      });
      return row;
    });
  }

  function unpackVerdict(verdict, outcomes) {
    return Array.isArray(verdict) ? [outcomes[verdict[0]], verdict[1] || 0] : [outcomes[0], verdict];
  }

  function unpackCell([outcome, reason, counts, worst, kernels, steps, errors, versus], row, texts, outcomes) {
    return {
      outcome: outcomes[outcome],
      reason: texts[reason],
      outcomes: Object.fromEntries(counts.map(([one, count]) => [outcomes[one], count])),
      worst: typeof worst === "number" ? row.cases[worst][0] : worst,
      kernels: kernels.map((kernel) => texts[kernel]),
      steps,
      ...unpackErrors(errors),
      versus: versus === null ? null : unpackErrors(versus),
    };
  }

  function unpackErrors(errors) {
    if (errors === null) return {};
    const [max_relative, mean_relative, max_absolute, max_ulps, share, wrong, elements] =
      Array.isArray(errors) ? errors : [0, 0, 0, 0, 0, 0, errors];
    return { max_relative, mean_relative, max_absolute, max_ulps, share, wrong, elements };
  }

  // ---- a row of the table

  function element(name, text = "", className = "") {
    const made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function lineOf(row, i) {
    const line = element("tr");
    line.dataset.row = i;
    line.tabIndex = -1;
    line.ariaExpanded = "false";
    const name = element("th", row.name);
    name.scope = "row";
    line.append(name, element("td", row.dtype, "dtype"), element("td", row.kind, "kind"));
    line.append(element("td", row.cases.length, "number count"));
    for (const column of columns) line.append(cellOf(column, row.cells[column], row.cases.length));
    return line;
  }

  function cellOf(column, cell, cases) {
    const made = element("td", "", "number cell none");
    made.dataset.label = column;
    if (!cell) {
      made.textContent = absent.has(column) ? "" : "·";
      return made;
    }
    made.className = `number cell ${classOf(cell.outcome)} h${heat(cell.share)}`;
    const sign = element("span", signs[cell.outcome], "sign");
    sign.ariaHidden = "true";
    made.append(sign, element("span", `${cell.outcome} `, "hidden"));
    if (cell.max_relative !== undefined) made.append(element("span", short(cell.max_relative), "error"));
    if (cell.max_ulps) made.append(" ", element("small", `${ulps(cell.max_ulps)} ulp`));
    if (Object.keys(cell.outcomes).length > 1) {
      const part = element("small", `${cell.outcomes[cell.outcome]}/${cases}`, "part");
      part.title = "cases with this outcome";
      made.append(" ", part);
    }
    return made;
  }

  // An error in few characters; 0 is exact.
  function short(value) {
    if (typeof value !== "number") return String(value);
    return value === 0 ? "0" : value.toExponential(1).replace("e+", "e");
  }

  // Units in the last place: fractions where they matter.
  function ulps(value) {
    if (typeof value !== "number") return String(value);
    if (value < 10) return String(Number(value.toPrecision(2)));
    return value < 1e6 ? Math.round(value).toLocaleString("en") : value.toExponential(0).replace("e+", "e");
  }

  // How near an error is to its limit, from 0 (exact) to 4 (beyond).
  function heat(share) {
    if (!share) return 0;
    return share < 0.1 ? 1 : share < 0.5 ? 2 : share <= 1 ? 3 : 4;
  }

  // ---- which rows are shown

  function show() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = chips.filter((chip) => chip.ariaPressed === "true").map((chip) => chip.dataset.outcome);
    let count = 0;
    for (const line of lines) {
      const i = Number(line.dataset.row);
      const row = rows[i];
      const fits =
        (!dtype.value || row.dtype === dtype.value) &&
        (!kind.value || row.kind === kind.value) &&
        (!wanted.length || wanted.some((outcome) => outcomes[i].has(outcome))) &&
        words.every((word) => texts[i].includes(word));
      line.hidden = !fits;
      if (!fits) close(line);
      count += fits;
    }
    document.getElementById("shown").textContent = `${count} of ${rows.length} rows`;
    document.getElementById("nothing").hidden = count > 0;
    makeReachable();
  }

  function clear() {
    filter.value = dtype.value = kind.value = "";
    for (const chip of chips) chip.ariaPressed = "false";
    show();
  }

  // ---- their order

  function number(value) {
    if (value === "inf" || value === "nan") return Infinity;
    return typeof value === "number" ? value : -1;
  }

  function keyOf(row, key, column) {
    if (key === "cases") return row.cases.length;
    if (key !== "column") return row[key];
    const cell = row.cells[column];
    if (!cell) return -3;
    if (cell.outcome === "failed") return 1e300 + Math.min(number(cell.share), 1e299);
    return cell.max_relative === undefined ? -2 : number(cell.max_relative);
  }

  function sort(key, column, descending) {
    const sign = descending ? -1 : 1;
    const keyed = lines.map((line) => {
      const i = Number(line.dataset.row);
      return { line, i, key: key ? keyOf(rows[i], key, column) : i };
    });
    keyed.sort((a, b) => {
      if (a.key === b.key) return a.i - b.i;
      return sign * (typeof a.key === "string" ? a.key.localeCompare(b.key, "en", { numeric: true }) : a.key - b.key);
    });
    const sorted = document.createDocumentFragment();
    for (const { line } of keyed) {
      const detail = detailOf(line);
      sorted.append(line);
      if (detail) sorted.append(detail);
    }
    body.append(sorted);
    for (const button of buttons) {
      const active = key && button.dataset.key === key && (key !== "column" || button.dataset.column === column);
      button.parentElement.ariaSort = active ? (descending ? "descending" : "ascending") : "none";
    }
  }

  for (const button of buttons) {
    button.addEventListener("click", () => {
      const { key, column } = button.dataset;
      const first = key === "column" || key === "cases" ? "descending" : "ascending";
      const second = first === "descending" ? "ascending" : "descending";
      const now = button.parentElement.ariaSort;
      if (now === second) sort("", "", false);
      else sort(key, column, (now === first ? second : first) === "descending");
    });
  }
  order.addEventListener("change", () => {
    const column = order.selectedOptions[0].dataset.column;
    if (column) sort("column", column, true);
    else sort(order.value ? "name" : "", "", false);
  });

  // ---- details

  function classOf(outcome) {
    return `o-${outcome.replace(" ", "-")}`;
  }

  function error(value) {
    return typeof value === "number" ? (value === 0 ? "0" : value.toExponential(2)) : String(value);
  }

  function block(column, cell, base) {
    const made = element("section", "", `block ${classOf(cell.outcome)}`);
    made.append(element("h3", `${column}: ${cell.outcome}`));
    const list = element("dl");
    const say = (term, text) => {
      if (text) list.append(element("dt", term), element("dd", text));
    };
    const counts = Object.entries(cell.outcomes);
    if (counts.length > 1) say("cases", counts.map(([outcome, count]) => `${count} ${outcome}`).join(", "));
    say("why", cell.reason);
    if (cell.max_relative !== undefined) {
      say("relative error", `${error(cell.max_relative)} at most, ${error(cell.mean_relative)} on average`);
      say("absolute error", error(cell.max_absolute));
      say("ulp", cell.max_ulps ? error(cell.max_ulps) : "");
      say("of the limit", typeof cell.share === "number" ? `${(100 * cell.share).toPrecision(3)} %` : "beyond");
      say("wrong", cell.wrong ? `${cell.wrong} of ${cell.elements} elements` : "");
    }
    const versus = cell.versus;
    if (versus) {
      const same = versus.wrong === 0 && versus.max_absolute === 0;
      say(`beside ${base}`, same ? "equal" : `${error(versus.max_relative)} apart, ${versus.wrong} of ${versus.elements} elements`);
    }
    say("worst case", cell.worst);
    say("kernels", cell.kernels.join(", "));
    say("steps run", cell.steps ? String(cell.steps) : "");
    made.append(list);
    return made;
  }

  function casesOf(row) {
    const box = element("div", "", "cases");
    box.tabIndex = 0;
    const made = element("table");
    const head = element("tr");
    for (const text of ["case", "note", ...columns]) head.append(element("th", text));
    made.append(element("thead"), element("tbody"));
    made.tHead.append(head);
    for (const [id, note, ...verdicts] of row.cases) {
      const line = element("tr");
      line.append(element("td", id), element("td", note));
      for (const verdict of verdicts) {
        line.append(verdict === null ? element("td", "·") : verdictOf(...verdict));
      }
      made.tBodies[0].append(line);
    }
    box.append(made);
    return box;
  }

  function verdictOf(outcome, relative) {
    const computed = outcome !== "unsupported";
    return element("td", computed ? `${signs[outcome]} ${error(relative)}` : signs[outcome], classOf(outcome));
  }

  function detailOf(line) {
    const next = line.nextElementSibling;
    return next && next.classList.contains("detail") ? next : null;
  }

  function open(line) {
    const row = rows[Number(line.dataset.row)];
    const detail = element("tr", "", "detail");
    const cell = element("td");
    cell.colSpan = 4 + columns.length;
    const blocks = element("div", "", "blocks");
    // Others are compared with the first column that has results.
    const base = columns.find((name) => row.cells[name] && !row.cells[name].versus && "max_relative" in row.cells[name]);
    for (const column of columns) if (row.cells[column]) blocks.append(block(column, row.cells[column], base));
    cell.append(blocks, casesOf(row));
    detail.append(cell);
    line.after(detail);
    line.ariaExpanded = "true";
  }

  function close(line) {
    const detail = detailOf(line);
    if (detail) detail.remove();
    line.ariaExpanded = "false";
    return Boolean(detail);
  }

  function toggle(line) {
    if (!close(line)) open(line);
  }

  // ---- mouse and keyboard

  function makeReachable() {
    const shown = lines.find((line) => !line.hidden && line === document.activeElement) || visible()[0];
    for (const line of lines) line.tabIndex = line === shown ? 0 : -1;
  }

  function visible() {
    return [...body.children].filter((line) => line.dataset.row && !line.hidden);
  }

  function move(line, step) {
    const all = visible();
    const at = step === -Infinity ? 0 : step === Infinity ? all.length - 1 : all.indexOf(line) + step;
    const next = all[Math.max(0, Math.min(all.length - 1, at))];
    if (!next) return;
    line.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  body.addEventListener("click", (event) => {
    const line = event.target.closest("tr[data-row]");
    if (line && !String(window.getSelection())) {
      toggle(line);
      line.focus();
    }
  });

  const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const line = event.target.closest("tr[data-row]");
    const writes = event.target.matches("input, select");
    if (event.key === "/" && !writes) {
      event.preventDefault();
      filter.focus();
      filter.select();
    } else if (event.key === "Escape") {
      if (line && close(line)) return;
      clear();
    } else if (line && event.key in steps) {
      event.preventDefault();
      move(line, steps[event.key]);
    } else if (line && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      toggle(line);
    } else if (event.target === filter && (event.key === "ArrowDown" || event.key === "Enter")) {
      event.preventDefault();
      const first = visible()[0];
      if (first) first.focus();
    }
  });

  for (const control of [filter, dtype, kind]) control.addEventListener("input", show);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.ariaPressed = String(chip.ariaPressed !== "true");
      show();
    });
  }
  document.getElementById("reset").addEventListener("click", clear);

  const themes = { "": "dark", dark: "light", light: "" };
  document.getElementById("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = themes[document.documentElement.dataset.theme || ""];
  });

  // The header of the table sticks below the tools, however many lines these take.
  new ResizeObserver(() => {
    document.documentElement.style.setProperty("--tools", `${tools.offsetHeight}px`);
  }).observe(tools);
  show();
})();
