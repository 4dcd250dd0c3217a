// The graph: folded blocks or nodes as boxes, drawn as far as they are in sight.
panels.graph = (() => {
  // Folds hold nodes first to first + length - 1; a row of alike blocks is one fold, and each block is one inside it.
  const folds = [];
  const foldsOf = new Map(); // by node, the outer one first
  const letters = new Map();
  for (const [start, length, count] of data.graph.blocks) {
    const kind = nodes.slice(start, start + length).map((n) => n.op).join(" ");
    if (!letters.has(kind)) letters.set(kind, letterOf(letters.size));
    const letter = letters.get(kind);
    addFold(start, length * count, `${count} × block ${letter}`);
    for (let k = 0; k < count; k++) addFold(start + k * length, length, `block ${letter} · ${k + 1} of ${count}`);
  }
  const total = d3.sum(nodes, (n) => n.measured?.seconds ?? 0);
  const most = d3.max(nodes, (n) => n.measured?.seconds ?? 0) || 1;
  const devices = [...new Set(nodes.map((n) => n.device))];
  const outputs = data.graph.outputs;
  let boxes = [];
  let routes = [];
  let byId = new Map();
  let chosen = null;
  let hits = [];
  let hitIds = new Set();
  let drawnBoxes = [];
  let isStale = true; // what is drawn looks otherwise now, wherever one looks
  let hit = -1;
  let svg;
  let content;
  let zoom;
  let frame = 0;

  function letterOf(i) {
    return i < 26 ? String.fromCharCode(65 + i) : letterOf(Math.floor(i / 26) - 1) + letterOf(i % 26);
  }

  function addFold(first, length, title) {
    const fold = { id: `f${folds.length}`, first, length, title, open: false };
    folds.push(fold);
    for (let i = first; i < first + length; i++) foldsOf.set(i, [...(foldsOf.get(i) ?? []), fold]);
  }

  // The outermost fold of a node that is closed.
  function closedFold(i) {
    return foldsOf.get(i)?.find((fold) => !fold.open);
  }

  // ---- what is a box now

  function idOf(i) {
    if (i < 0) return `i${-1 - i}`;
    if (i >= nodes.length) return `o${i - nodes.length}`;
    return closedFold(i)?.id ?? `n${i}`;
  }

  function layout() {
    const made = new Map();
    const add = (id, box) => {
      if (!made.has(id)) made.set(id, { id, ...box });
    };
    data.graph.inputs.forEach((one, i) => add(`i${i}`, portBox(`%${one.name}`, one.type, "input")));
    nodes.forEach((node, i) => {
      const fold = closedFold(i);
      add(idOf(i), fold ? foldBox(fold) : nodeBox(node, i));
    });
    outputs.forEach((one, i) => add(`o${i}`, portBox(one.name, one.type, "output")));
    const list = [...made.values()];
    const place = new Map(list.map((box, i) => [box.id, i]));
    const edges = new Map();
    for (const [from, to, type] of data.graph.edges) {
      const [a, b] = [idOf(from), idOf(to)];
      if (a !== b) edges.set(`${a} ${b}`, [place.get(a), place.get(b), type]);
    }
    const links = [...edges.values()];
    const laid = layered(list, links);
    boxes = laid.boxes;
    byId = new Map(boxes.map((box) => [box.id, box]));
    routes = links.map(([a, b, type], i) => {
      const points = laid.edges[i];
      const xs = points.map((p) => p[0]);
      return {
        id: `${boxes[a].id} ${boxes[b].id}`, from: boxes[a].id, to: boxes[b].id, text: texts[type], path: curve(points),
        x0: d3.min(xs), x1: d3.max(xs), y0: points[0][1], y1: points.at(-1)[1],
      };
    });
    hitIds = new Set(hits.map(idOf));
  }

  const curve = d3.line().curve(d3.curveMonotoneY);

  const ruler = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(document.body).fontFamily;
  const widths = new Map();

  function textWidth(font, text) {
    const key = `${font} ${text}`;
    if (!widths.has(key)) {
      ruler.font = `${font} ${family}`;
      widths.set(key, ruler.measureText(text).width);
    }
    return widths.get(key);
  }

  function widthOf(title, rest) {
    return Math.ceil(Math.max(textWidth("600 12.5px", title), textWidth("11.5px", rest))) + 26;
  }

  function nodeBox(node, i) {
    const [title, more] = [shortened(node.op, 30), shortened(node.name, 28)];
    const seconds = node.measured?.seconds ?? 0;
    return { kind: "node", node: i, title, more, width: widthOf(title, more), height: 42, op: node.op, device: node.device, seconds };
  }

  function foldBox(fold) {
    const inside = nodes.slice(fold.first, fold.first + fold.length);
    const seconds = d3.sum(inside, (n) => n.measured?.seconds ?? 0);
    const title = `▸ ${fold.title}`;
    const more = `${fold.length} nodes${total ? `, ${shareText(seconds / total)}` : ""}`;
    return { kind: "fold", fold, node: fold.first, title, more, width: widthOf(title, more), height: 46, op: "", device: inside[0].device, seconds };
  }

  function portBox(title, type, kind) {
    const [name, more] = [shortened(title, 30), shortened(type, 28)];
    return { kind, title: name, more, width: widthOf(name, more), height: 42, op: "", device: "", seconds: 0 };
  }

  // ---- drawing

  function draw() {
    rememberTones();
    svg = d3.select("#canvas");
    content = svg.append("g");
    content.append("g").attr("class", "edges");
    content.append("g").attr("class", "boxes");
    zoom = d3.zoom().scaleExtent([0.02, 3]).on("zoom", (event) => {
      content.attr("transform", event.transform);
      svg.classed("far", event.transform.k < 0.4);
      soon();
    });
    svg.call(zoom).on("dblclick.zoom", null);
    bind();
    layout();
    start();
    slowest();
    new ResizeObserver(later).observe(svg.node());
  }

  function later() {
    isStale = true;
    soon();
  }

  function soon() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(render);
  }

  function size() {
    const { width, height } = svg.node().getBoundingClientRect();
    return [width || 800, height || 600];
  }

  function render() {
    const [width, height] = size();
    const t = d3.zoomTransform(svg.node());
    const [x0, y0] = t.invert([-80, -80]);
    const [x1, y1] = t.invert([width + 80, height + 80]);
    const inSight = (a0, a1, b0, b1) => a1 >= x0 && a0 <= x1 && b1 >= y0 && b0 <= y1;
    const seen = boxes.filter((b) => inSight(b.x - b.width / 2, b.x + b.width / 2, b.y - b.height / 2, b.y + b.height / 2));
    if (!isStale && seen.length === drawnBoxes.length && seen.every((b, i) => b === drawnBoxes[i])) return;
    drawnBoxes = seen;
    isStale = false;
    content.select(".edges").selectAll("path").data(routes.filter((r) => inSight(r.x0 - 20, r.x1 + 20, r.y0, r.y1)), (r) => r.id)
      .join((enter) => enter.append("path").on("pointermove", (event, r) => showHint(event, r.text)).on("pointerleave", hideHint))
      .attr("d", (r) => r.path)
      .classed("near", (r) => chosen !== null && (r.from === chosen || r.to === chosen));
    content.select(".boxes").selectAll("g").data(seen, (b) => b.id)
      .join(enterBox)
      .attr("transform", (b) => `translate(${b.x - b.width / 2},${b.y - b.height / 2})`)
      .classed("chosen", (b) => b.id === chosen)
      .classed("hit", (b) => hitIds.has(b.id))
      .select("rect").style("fill", fillOf);
  }

  function enterBox(enter) {
    const group = enter.append("g").attr("class", (b) => `box ${b.kind}`).attr("data-id", (b) => b.id)
      .on("click", (event, b) => choose(b.id))
      .on("dblclick", (event, b) => b.kind === "fold" && toggle(b.fold))
      .on("pointermove", (event, b) => showHint(event, hintOf(b))).on("pointerleave", hideHint);
    group.append("rect").attr("rx", (b) => (b.kind === "input" || b.kind === "output" ? 16 : 6))
      .attr("width", (b) => b.width).attr("height", (b) => b.height);
    group.filter((b) => b.op).append("path").attr("class", "stripe").style("stroke", (b) => toneOf(b.op)).attr("d", (b) => `M2.5,6V${b.height - 6}`);
    group.append("text").attr("class", "name").attr("x", 12).attr("y", 18).text((b) => b.title);
    group.append("text").attr("class", "rest").attr("x", 12).attr("y", 33).text((b) => b.more);
    return group;
  }

  function hintOf(b) {
    const time = b.seconds ? `\n${timeText(b.seconds)}${total ? `, ${shareText(b.seconds / total)} of all steps` : ""}` : "";
    if (b.kind === "node") return `${nodes[b.node].op} ${nodes[b.node].name}\n${nodes[b.node].kernel}${time}`;
    return `${b.title}\n${b.more}${time}`;
  }

  function fillOf(b) {
    const tint = $("tint").value;
    if (tint === "time" && b.seconds) return `color-mix(in srgb, var(--hot) ${Math.round(80 * Math.sqrt(Math.min(b.seconds / most, 1)))}%, var(--paper))`;
    if (!b.device || (tint === "op" && !b.op)) return "var(--raised)";
    const tone = tint === "device" ? `var(--${PALETTE[devices.indexOf(b.device) % PALETTE.length]})` : toneOf(b.op);
    return `color-mix(in srgb, ${tone} 14%, var(--paper))`;
  }

  // ---- where one looks

  function fit() {
    const [width, height] = size();
    const [left, right] = [d3.min(boxes, (b) => b.x - b.width / 2), d3.max(boxes, (b) => b.x + b.width / 2)];
    const bottom = d3.max(boxes, (b) => b.y + b.height / 2);
    const k = Math.min(width / (right - left + 60), height / (bottom + 60), 1);
    go(d3.zoomIdentity.translate(width / 2 - (k * (left + right)) / 2, k * 30).scale(k));
  }

  // The first nodes, at a size that can be read.
  function start() {
    const [width, height] = size();
    const first = d3.least(boxes, (b) => b.y);
    const bottom = d3.max(boxes, (b) => b.y + b.height / 2);
    const k = Math.max(Math.min(1, height / (bottom + 60)), 0.75);
    go(d3.zoomIdentity.translate(width / 2 - k * first.x, 24).scale(k), false);
  }

  function go(transform, smoothly = true) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    (smoothly && !still ? svg.transition().duration(250) : svg).call(zoom.transform, transform);
  }

  function center(box) {
    const [width, height] = size();
    const k = Math.max(d3.zoomTransform(svg.node()).k, 0.75);
    go(d3.zoomIdentity.translate(width / 2 - k * box.x, height / 2 - k * box.y).scale(k));
  }

  // ---- choosing, folding

  function choose(id, moves = false) {
    chosen = id;
    const box = byId.get(id);
    if (moves) center(box);
    $("detail").replaceChildren(detailOfBox(box));
    $("detail").scrollTop = 0;
    later();
  }

  function detailOfBox(box) {
    if (box.kind === "fold") return detailOfFold(box.fold);
    if (box.kind !== "node") return detailOfPort(box);
    const made = detailOf(box.node);
    made.children[0].after(ways(box.node, box.node));
    return made;
  }

  function detailOfPort(box) {
    const made = element("div");
    made.append(element("h2", `${box.kind} ${box.title}`), element("p", box.more));
    return made;
  }

  function buttonOf(text, act) {
    const button = element("button", text, "action");
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  }

  // Ways to fold again what a node or block lies in.
  function ways(first, last) {
    const made = element("div", "", "ways");
    const around = (foldsOf.get(first) ?? []).filter((fold) => fold.open && fold.first <= first && last < fold.first + fold.length);
    for (const fold of around) made.append(buttonOf(`fold ${fold.title}`, () => toggle(fold)));
    return made;
  }

  function detailOfFold(fold) {
    const made = element("div");
    const rows = d3.range(fold.first, fold.first + fold.length);
    made.append(element("h2", `${fold.title}, ${fold.length} nodes`), buttonOf("unfold", () => toggle(fold)), ways(fold.first, rows.at(-1)));
    made.append(tableOfNodes(rows, null, "Nodes of the block"));
    return made;
  }

  function tableOfNodes(rows, sorted, label) {
    const columns = [
      { heading: "node", text: (i) => `${nodes[i].op} ${nodes[i].name}`, wide: true },
      { heading: "time", number: true, text: (i) => timeText(nodes[i].measured?.seconds), key: (i) => nodes[i].measured?.seconds },
      { heading: "kernel", text: (i) => nodes[i].kernel.split("[")[0] },
    ];
    const holder = element("div", "", "scroll");
    holder.append(tableOf(columns, rows, { sorted, chosen: (i) => select(i), label }));
    return holder;
  }

  function slowest() {
    const rows = d3.sort(d3.range(nodes.length).filter((i) => nodes[i].measured), (i) => -nodes[i].measured.seconds).slice(0, 12);
    if (rows.length) $("detail").append(element("h2", "Slowest steps"), tableOfNodes(rows, 1, "Slowest steps"));
  }

  function toggle(fold) {
    fold.open = !fold.open;
    relayout(idOf(fold.first));
  }

  function foldAll(isFolded) {
    const node = chosen === null ? undefined : byId.get(chosen).node;
    for (const fold of folds) fold.open = !isFolded;
    $("fold").ariaPressed = String(isFolded);
    relayout(node === undefined ? null : idOf(node));
    if (node === undefined) start();
  }

  function relayout(id) {
    layout();
    chosen = null;
    if (id) choose(id, true);
    later();
  }

  // Its blocks are unfolded.
  function reveal(i) {
    const closed = (foldsOf.get(i) ?? []).filter((fold) => !fold.open);
    for (const fold of closed) fold.open = true;
    if (closed.length) layout();
    choose(idOf(i), true);
  }

  // A node from anywhere in the report.
  function select(i) {
    showPanel("graph");
    reveal(i);
    svg.node().focus({ preventScroll: true });
  }

  // ---- finding

  const said = nodes.map((n) => [n.op, n.name, n.kernel, n.device, ...n.sources].join(" ").toLowerCase());

  function find() {
    const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    hits = words.length ? d3.range(nodes.length).filter((i) => words.every((word) => said[i].includes(word))) : [];
    hitIds = new Set(hits.map(idOf));
    hit = -1;
    $("found").textContent = words.length ? `${hits.length} of ${nodes.length}` : `${nodes.length} nodes`;
    later();
  }

  function next(step) {
    if (!hits.length) return;
    hit = (hit + step + hits.length) % hits.length;
    reveal(hits[hit]);
    $("found").textContent = `${hit + 1} of ${hits.length}`;
  }

  // ---- the keyboard

  function walk(key) {
    if (chosen === null) return choose(d3.least(boxes, (b) => b.y).id, true);
    const box = byId.get(chosen);
    const ends = { ArrowDown: routes.filter((r) => r.from === chosen).map((r) => r.to), ArrowUp: routes.filter((r) => r.to === chosen).map((r) => r.from) };
    const beside = boxes.filter((b) => b !== box && Math.abs(b.y - box.y) < 30 && (key === "ArrowRight" ? b.x > box.x : b.x < box.x));
    const near = key in ends ? ends[key].map((id) => byId.get(id)) : beside;
    const found = d3.least(near, (b) => 100 * Math.abs(b.y - box.y) + Math.abs(b.x - box.x)); // the nearest rank first
    if (found) choose(found.id, true);
  }

  // The innermost open fold that holds the box is closed.
  function foldAround(box) {
    const inner = box.kind === "fold" ? box.fold.length : 1;
    const fold = foldsOf.get(box.node)?.findLast((one) => one.open && one.length >= inner);
    if (fold) toggle(fold);
  }

  function bind() {
    $("find").addEventListener("input", find);
    $("find").addEventListener("keydown", (event) => {
      if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") {
        $("find").value = "";
        find();
        svg.node().focus();
      }
    });
    $("tint").addEventListener("change", later);
    $("fold").addEventListener("click", () => foldAll($("fold").ariaPressed !== "true"));
    $("zoom-in").addEventListener("click", () => svg.call(zoom.scaleBy, 1.4));
    $("zoom-out").addEventListener("click", () => svg.call(zoom.scaleBy, 1 / 1.4));
    $("zoom-fit").addEventListener("click", fit);
    svg.on("keydown", (event) => {
      if (event.key.startsWith("Arrow")) walk(event.key);
      else if (event.key === "Enter" && byId.get(chosen)?.kind === "fold") toggle(byId.get(chosen).fold);
      else if (event.key === "Backspace" && byId.get(chosen)?.node !== undefined) foldAround(byId.get(chosen));
      else return;
      event.preventDefault();
    });
    $("fold").hidden = !folds.length;
    find();
  }

  function key(name) {
    const act = { "/": () => $("find").focus(), "+": () => $("zoom-in").click(), "-": () => $("zoom-out").click(), 0: fit, b: () => $("fold").click() }[name];
    if (act) act();
    return !!act;
  }

  return { draw, key, select, shown: later };
})();
