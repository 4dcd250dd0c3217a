// Sorting by the headings; the rows are there without it.
"use strict";
for (const button of document.querySelectorAll("#layers th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const index = [...heading.parentNode.children].indexOf(heading);
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of heading.parentNode.children) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = document.querySelector("#layers tbody");
    const key = (row) => row.children[index].dataset.value ?? row.children[index].textContent;
    const order = (a, b) => {
      const x = Number(key(a)), y = Number(key(b));
      return Number.isNaN(x) || Number.isNaN(y) ? key(a).localeCompare(key(b)) : x === y ? 0 : x - y;
    };
    const rows = [...body.rows].sort(order);
    body.append(...(up ? rows : rows.reverse()));
  });
}
