// What runs each node, with every kernel that was considered.
panels.kernels = (() => {
  const said = nodes.map((n) => [n.op, n.name, n.kernel, n.device, n.note, ...n.candidates.map((c) => texts[c[3]])].join(" ").toLowerCase());
  const columns = [
    { heading: "#", number: true, text: (i) => String(i), key: (i) => i },
    { heading: "op", text: (i) => nodes[i].op },
    { heading: "value", text: (i) => nodes[i].name },
    { heading: "type", text: (i) => nodes[i].outputs[0][1] },
    { heading: "kernel", text: (i) => nodes[i].kernel },
    { heading: "device", text: (i) => nodes[i].device },
    { heading: "usable", number: true, title: "kernels that could run it, of those considered", text: (i) => countText(nodes[i]), key: (i) => nodes[i].candidates.length },
    { heading: "time", number: true, text: (i) => timeText(nodes[i].measured?.seconds), key: (i) => nodes[i].measured?.seconds },
  ];

  function countText(node) {
    return node.candidates.length ? `${node.candidates.filter((c) => c[1]).length} of ${node.candidates.length}` : "";
  }

  function draw() {
    $("kernel-filter").addEventListener("input", fill);
    fill();
  }

  function fill() {
    const words = $("kernel-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = d3.range(nodes.length).filter((i) => words.every((word) => said[i].includes(word)));
    $("kernels-shown").textContent = `${shown.length} of ${nodes.length} nodes`;
    $("kernel-table").replaceChildren(tableOf(columns, shown, { open: details, label: "Kernels by node" }));
  }

  function details(i) {
    const made = element("div", "", "inside");
    const button = element("button", "show in the graph", "action");
    button.type = "button";
    button.addEventListener("click", () => panels.graph.select(i));
    made.append(nodes[i].candidates.length ? candidatesOf(nodes[i]) : element("p", nodes[i].note || "it needs no kernel: its result is the bytes of an operand", "soft"), button);
    return made;
  }

  function key(name) {
    if (name === "/") $("kernel-filter").focus();
    return name === "/";
  }

  return { draw, key };
})();
