// The arena over time: each buffer from its first to its last step, at its addresses; above it the bytes alive.
panels.memory = (() => {
  let plan = null;
  let step = 0;
  let at = null; // the zoomed scale of steps
  let parts;

  function draw() {
    data.memory.forEach((one, i) => $("arena").append(new Option(`${i + 1}. ${one.device}`, i)));
    $("arena-choice").hidden = data.memory.length < 2;
    $("arena").addEventListener("change", () => show(data.memory[$("arena").value]));
    if (data.memory.length) show(data.memory[0]);
    else $("memory-summary").textContent = "no memory is planned: sizes are missing";
    new ResizeObserver(() => plan?.peak && render()).observe($("memory-chart"));
  }

  function show(one) {
    plan = one;
    at = null;
    const lost = `${shareText(plan.fragmentation) || "0 %"} lost to fragmentation`;
    $("memory-summary").textContent =
      `arena ${bytesText(plan.arena)}, lower bound ${bytesText(plan.lower_bound)} (${lost}), without reuse ` +
      `${bytesText(plan.without_reuse)}; constants ${bytesText(plan.constants)}, outputs ${bytesText(plan.outputs)}`;
    if (!plan.peak) {
      $("memory-chart").replaceChildren(element("p", "nothing lies in the arena", "soft"));
      return;
    }
    render();
    move(plan.peak.step);
  }

  function render() {
    const holder = $("memory-chart");
    const width = holder.clientWidth || 800;
    const heights = { alive: 90, gap: 34, arena: width < 600 ? 260 : 340 };
    const box = { left: 62, right: 12, top: 18, bottom: 34 };
    const height = box.top + heights.alive + heights.gap + heights.arena + box.bottom;
    holder.replaceChildren();
    const svg = d3.select(holder).append("svg").attr("width", width).attr("height", height).attr("tabindex", 0).attr("role", "application")
      .attr("aria-label", "Arena: lifetimes over offsets; arrow keys move through the steps");
    const x = d3.scaleLinear([0, plan.alive.length], [box.left, width - box.right]);
    const top = Math.max(plan.arena, plan.lower_bound);
    const alive = d3.scaleLinear([0, top], [box.top + heights.alive, box.top]);
    const floor = height - box.bottom;
    const offset = d3.scaleLinear([0, top], [floor, floor - heights.arena]);
    svg.append("clipPath").attr("id", "inside").append("rect").attr("x", box.left).attr("y", 0).attr("width", width - box.left - box.right).attr("height", height);
    const inside = svg.append("g").attr("clip-path", "url(#inside)");
    axisOf(svg, alive, box.left, 3);
    axisOf(svg, offset, box.left, 6);
    svg.append("text").attr("class", "label").attr("x", box.left).attr("y", 12).text("bytes alive; solid: arena, dashed: lower bound");
    svg.append("text").attr("class", "label").attr("x", box.left).attr("y", box.top + heights.alive + heights.gap - 8).text("offset in the arena");
    svg.append("text").attr("class", "label").attr("x", width - box.right).attr("y", height - 4).attr("text-anchor", "end").text("step");
    parts = { svg, inside, x, alive, offset, below: svg.append("g").attr("transform", `translate(0,${floor})`).attr("class", "axis"), height, floor };
    const zoom = d3.zoom().scaleExtent([1, Math.max(plan.alive.length / 8, 1)]).extent([[box.left, 0], [width - box.right, height]])
      .translateExtent([[box.left, 0], [width - box.right, height]]).on("zoom", (event) => {
        at = event.transform.rescaleX(x);
        paint();
      });
    svg.call(zoom).on("dblclick.zoom", null).on("keydown", keys)
      .on("click", (event) => move(Math.floor(at.invert(d3.pointer(event)[0]))));
    at = x;
    paint();
  }

  function axisOf(svg, scale, left, ticks) {
    const most = scale.domain()[1];
    const unit = 1024 ** Math.min(Math.floor(Math.log(Math.max(most, 1)) / Math.log(1024)), 3);
    const values = d3.ticks(0, most / unit, ticks).map((value) => value * unit);
    svg.append("g").attr("class", "axis").attr("transform", `translate(${left},0)`)
      .call(d3.axisLeft(scale).tickValues(values).tickFormat((value) => (value ? bytesText(value) : "0")));
  }

  function paint() {
    const { inside, alive, offset, below } = parts;
    const ticks = at.ticks(Math.min(10, plan.alive.length)).filter(Number.isInteger);
    below.call(d3.axisBottom(at).tickValues(ticks).tickFormat(d3.format("d")));
    const area = d3.area().curve(d3.curveStepAfter).x((d) => at(d[0])).y0(alive(0)).y1((d) => alive(d[1]));
    const points = [...plan.alive.map((bytes, i) => [i, bytes]), [plan.alive.length, plan.alive.at(-1)]];
    inside.selectAll("path.alive").data([points]).join("path").attr("class", "alive").attr("d", area);
    const bounds = [["arena", plan.arena], ["lower bound", plan.lower_bound]];
    inside.selectAll("line.bound").data(bounds).join("line").attr("class", (d) => `bound ${d[0].replace(" ", "-")}`)
      .attr("x1", at.range()[0]).attr("x2", at.range()[1]).attr("y1", (d) => alive(d[1])).attr("y2", (d) => alive(d[1]));
    inside.selectAll("rect.life").data(plan.lifetimes.filter((life) => life[4])).join((enter) =>
      enter.append("rect").on("pointermove", (event, life) => showHint(event, hintOf(life))).on("pointerleave", hideHint))
      .attr("class", (life) => `life ${life[2]}${life[5] <= step && step <= life[6] ? " now" : ""}`)
      .style("--tone", (life, i) => `var(--${PALETTE[i % PALETTE.length]})`)
      .attr("x", (life) => at(life[5])).attr("width", (life) => Math.max(at(life[6] + 1) - at(life[5]) - 0.5, 0.7))
      .attr("y", (life) => offset(life[3] + life[4])).attr("height", (life) => Math.max(offset(life[3]) - offset(life[3] + life[4]) - 0.5, 0.7));
    inside.selectAll("rect.cursor").data([step]).join("rect").attr("class", "cursor")
      .attr("x", at(step)).attr("width", Math.max(at(step + 1) - at(step), 1.5)).attr("y", 0).attr("height", parts.floor);
  }

  function hintOf([name, type, kind, start, bytes, from, to]) {
    return `${name}\n${kind === "workspace" ? "scratch memory of a kernel" : type}\n${bytesText(bytes)} at ${d3.format(",")(start)}, ${from === to ? `step ${from}` : `steps ${from} to ${to}`}`;
  }

  function move(to) {
    step = Math.min(Math.max(to, 0), plan.alive.length - 1);
    const isPeak = step === plan.peak.step;
    const label = plan.steps[step] ?? "outputs are copied out";
    $("memory-step").textContent = `${isPeak ? "the peak, " : ""}step ${step}: ${bytesText(plan.alive[step])} alive, ${label}`;
    const rows = plan.lifetimes.filter((life) => life[4] && life[5] <= step && step <= life[6]);
    const columns = [
      { heading: "buffer", text: (life) => life[0] },
      { heading: "type", text: (life) => life[1] },
      { heading: "size", number: true, text: (life) => bytesText(life[4]), key: (life) => life[4] },
      { heading: "offset", number: true, text: (life) => d3.format(",")(life[3]), key: (life) => life[3] },
      { heading: "steps", number: true, text: (life) => `${life[5]}–${life[6]}`, key: (life) => life[5] },
    ];
    $("memory-table").replaceChildren(tableOf(columns, rows, { sorted: 2, label: "Buffers alive at the step" }));
    paint();
  }

  function keys(event) {
    const moves = { ArrowLeft: step - 1, ArrowRight: step + 1, Home: 0, End: plan.alive.length - 1, p: plan.peak.step };
    if (!(event.key in moves)) return;
    move(moves[event.key]);
    event.preventDefault();
  }

  return { draw };
})();
