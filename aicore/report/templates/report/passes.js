// Passes in the order in which they ran, with their rules and what changed in the text of the graph.
panels.passes = (() => {
  const passes = data.passes;
  let current = passes.find((one) => one.added || one.removed) ?? passes[0];

  function draw() {
    $("only-changed").addEventListener("change", list);
    list();
  }

  function list() {
    const shown = $("only-changed").checked ? passes.filter((one) => one.added || one.removed || one.error) : passes;
    $("passes-shown").textContent = `${shown.length} of ${passes.length} passes`;
    const columns = [
      { heading: "pass", text: (one) => `${one.number}. ${one.name}${one.stage === "sized" ? " (sizes known)" : ""}`, key: (one) => one.number },
      { heading: "matches", number: true, text: (one) => String(one.matches), key: (one) => one.matches },
      { heading: "nodes", number: true, text: (one) => (one.before === one.after ? String(one.after) : `${one.before} → ${one.after}`), key: (one) => one.after - one.before },
      { heading: "ms", number: true, text: (one) => String(Number(one.ms.toPrecision(2))), key: (one) => one.ms },
    ];
    const table = tableOf(columns, shown, { chosen: choose, label: "Passes" });
    table.id = "pass-table";
    $("pass-list").replaceChildren(table);
    if (current) choose(shown.includes(current) ? current : shown[0], table.tBodies[0].rows[shown.indexOf(current)]);
  }

  function choose(one, line) {
    if (!one) return $("pass-detail").replaceChildren(element("p", "no pass changed anything", "soft"));
    current = one;
    for (const other of $("pass-list").querySelectorAll("tr.chosen")) other.classList.remove("chosen");
    line?.classList.add("chosen");
    const pane = $("pass-detail");
    pane.replaceChildren(element("h2", `${one.number}. ${one.name}`));
    if (one.options) pane.append(element("p", one.options, "soft"));
    if (one.error) pane.append(element("p", one.error, "error"));
    pane.append(...one.notes.map((note) => element("p", note, "soft")));
    if (one.rules.length) pane.append(rules(one));
    pane.append(element("h3", one.diff.length ? `${counted(one.removed, "line", "lines")} gone, ${one.added} new` : "nothing changed"));
    if (one.diff.length) pane.append(diff(one));
    pane.scrollTop = 0;
  }

  function rules(one) {
    const columns = [
      { heading: "rule", text: ([name]) => name },
      { heading: "matches", number: true, text: ([, matches]) => String(matches), key: ([, matches]) => matches },
      { heading: "nearest miss", text: ([, , reason]) => reason || "", wide: true },
    ];
    const holder = element("details");
    holder.open = one.rules.length <= 6;
    const inside = element("div", "", "scroll");
    inside.append(tableOf(columns, one.rules, { label: `Rules of ${one.name}` }));
    holder.append(element("summary", counted(one.rules.length, "rule", "rules")), inside);
    return holder;
  }

  function diff(one) {
    const made = element("pre", "", "diff");
    const kinds = { "+": "added", "-": "removed", "@": "gap" };
    for (const text of one.diff) made.append(element("span", `${text}\n`, kinds[text[0]] ?? "same"));
    if (one.left_out) made.append(element("span", `… ${one.left_out} more lines: aicore inspect --diff\n`, "gap"));
    return made;
  }

  return { draw };
})();
