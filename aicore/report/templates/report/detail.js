// What is known of one node.
function detailOf(i) {
  const node = nodes[i];
  const made = element("div");
  made.append(element("h2", `${node.op} ${node.name}`));
  const facts = element("dl");
  const say = (term, ...content) => {
    const inside = element("dd");
    inside.append(...content);
    facts.append(element("dt", term), inside);
  };
  say("makes", ...lines(node.outputs.map(([name, type]) => `%${name}: ${type}`)));
  const reads = node.inputs.filter(Boolean);
  if (reads.length) say("reads", ...reads.map(([name, type, producer]) => operand(`%${name}: ${texts[type]}`, producer)));
  if (node.device) say("device", node.device);
  if (node.kernel) say("kernel", element("b", node.kernel), node.note ? ` ${node.note}` : "");
  if (node.measured) {
    const m = node.measured;
    say("time", `${timeText(m.seconds)}${m.host ? `, launched in ${timeText(m.host)}` : ""}`);
    if (m.flops) say("computes", `${d3.format(",")(m.flops)} operations, ${rateText(m.flops, m.seconds)} GFLOP/s`);
    if (m.bytes) say("moves", `${bytesText(m.bytes)}, ${rateText(m.bytes, m.seconds)} GB/s`);
    if (m.bound) say("roofline", `${shareText(m.of_roof)} of what the ceilings allow, bound by ${m.bound}`);
  }
  if (node.sources.length) {
    const more = node.more_sources ? `, and ${node.more_sources} more` : "";
    say("from", node.sources.join(", ") + more);
  }
  made.append(facts);
  if (node.candidates.length) made.append(element("h3", counted(node.candidates.length, "kernel considered", "kernels considered")), candidatesOf(node));
  made.append(element("h3", "op"), element("code", node.attributes, "attributes"));
  return made;
}

function lines(some) {
  return some.map((text) => element("div", text));
}

function operand(text, producer) {
  if (producer === null) return element("div", `${text}, constant`, "soft");
  if (producer < 0) return element("div", `${text}, input`, "soft");
  const line = element("div");
  const button = element("button", text, "link");
  button.type = "button";
  button.addEventListener("click", () => panels.graph.select(producer));
  line.append(button);
  return line;
}

function candidatesOf(node) {
  const rows = node.candidates.map(([name, usable, seconds, note], rank) => ({
    name: texts[name],
    usable,
    seconds,
    note: texts[note],
    rank,
  }));
  const columns = [
    { heading: "kernel", text: (row) => `${row.usable ? (row.rank ? "" : "✓ ") : "✗ "}${row.name}`, wide: true },
    { heading: "time", number: true, text: (row) => timeText(row.seconds), key: (row) => row.seconds ?? Infinity },
    { heading: "reason", text: (row) => row.note, wide: true },
  ];
  const holder = element("div", "", "scroll");
  holder.append(tableOf(columns, rows, { label: `Kernels considered for ${node.name}` }));
  return holder;
}
