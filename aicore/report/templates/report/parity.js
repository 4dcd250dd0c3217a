// Targets beside each other, node by node, if that was asked for.
if (data.parity) {
  panels.parity = {
    draw() {
      const { columns, rows, right, remarks } = data.parity;
      const usable = columns.filter((column) => !column.reason);
      const absent = columns.filter((column) => column.reason).map((column) => `${column.name} was not used: ${column.reason}`);
      $("parity-summary").textContent = [right ? "✓ nothing is wrong" : "✗ something is wrong", ...absent, ...remarks].join("; ");
      $("parity-summary").className = right ? "right" : "wrong";
      const shown = [
        { heading: "what", text: (row) => row.name, wide: true },
        { heading: "dtype", text: (row) => row.dtype },
        ...usable.map((column) => ({
          heading: column.name,
          title: "largest relative error",
          text: (row) => cellText(row.cells[column.name]),
          key: (row) => errorOf(row.cells[column.name]),
          number: true,
        })),
      ];
      $("parity-table").append(tableOf(shown, rows, { label: "Parity", open: (row) => reasons(row, usable) }));
    },
  };
}

function errorOf(cell) {
  if (!cell) return -1;
  return typeof cell.max_relative === "number" ? cell.max_relative : cell.outcome === "failed" ? Infinity : -1;
}

function cellText(cell) {
  if (!cell) return "";
  const error = typeof cell.max_relative === "number" ? ` ${cell.max_relative.toExponential(1).replace("e+", "e")}` : "";
  return `${cell.outcome}${error}`;
}

function reasons(row, columns) {
  const made = element("dl", "", "inside");
  for (const column of columns) {
    const cell = row.cells[column.name];
    if (cell) made.append(element("dt", column.name), element("dd", `${cellText(cell)}${cell.reason ? `: ${cell.reason}` : ""}; ${cell.kernels.join(", ")}`));
  }
  return made;
}
