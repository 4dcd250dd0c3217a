// Steps beside the ceilings of their device.
panels.profile = (() => {
  const profile = data.profile;

  function draw() {
    if (!profile) {
      $("profile-summary").textContent = "not measured: the model was not run for this report";
      for (const id of ["roofline", "by-op", "step-table"]) $(id).append(element("p", "nothing to show", "soft"));
      return;
    }
    const plain = profile.run === null ? "" : `an ordinary run takes ${timeText(profile.run)} in the median, ${timeText(profile.best)} at best; `;
    const ceilings = Object.entries(profile.ceilings).map(([device, one]) =>
      `${device} reaches ${d3.format(",.0f")(one.flops / 1e9)} GFLOP/s in float32 and ${d3.format(",.1f")(one.bytes / 1e9)} GB/s, ${one.source}`);
    const reasons = Object.entries(profile.reasons).map(([device, reason]) => `no ceilings of ${device}: ${reason}`);
    $("profile-summary").textContent =
      `${plain}a profiled one ${timeText(profile.wall)}, ${timeText(profile.outside)} of it outside of steps; steps take ` +
      `${timeText(profile.seconds)} in all, each at its best of ${profile.runs} runs; ${[...ceilings, ...reasons].join("; ")}`;
    byOp();
    steps();
    roofline();
    new ResizeObserver(roofline).observe($("roofline"));
  }

  function bar(share) {
    const made = element("span", "", "bar");
    made.append(element("i"), element("span", shareText(share)));
    made.firstChild.style.width = `${100 * share}%`;
    return made;
  }

  function byOp() {
    const rows = d3.rollups(profile.rows, (some) => ({ seconds: d3.sum(some, (r) => r.seconds), count: some.length }), (r) => r.op || r.kernel)
      .map(([op, sums]) => ({ op, ...sums }));
    const columns = [
      { heading: "op", text: (row) => row.op, node: (row) => swatch(row.op), wide: true },
      { heading: "steps", number: true, text: (row) => String(row.count), key: (row) => row.count },
      { heading: "time", number: true, text: (row) => timeText(row.seconds), key: (row) => row.seconds },
      { heading: "share", text: (row) => shareText(row.seconds / profile.seconds), key: (row) => row.seconds, node: (row) => bar(row.seconds / profile.seconds) },
    ];
    $("by-op").append(tableOf(columns, rows, { sorted: 2, label: "Time by op" }));
  }

  function swatch(op) {
    const made = element("span", "", "swatch");
    const dot = element("i");
    dot.style.background = toneOf(op);
    made.append(dot, op);
    return made;
  }

  function steps() {
    const columns = [
      { heading: "op", text: (row) => row.op || row.kernel, node: (row) => swatch(row.op || row.kernel) },
      { heading: "value", text: (row) => row.value || row.step },
      { heading: "kernel", text: (row) => row.kernel },
      { heading: "device", text: (row) => row.device, only: new Set(profile.rows.map((row) => row.device)).size > 1 },
      { heading: "type", text: (row) => row.types },
      { heading: "time", number: true, text: (row) => timeText(row.seconds), key: (row) => row.seconds },
      { heading: "share", text: (row) => shareText(row.seconds / profile.seconds), key: (row) => row.seconds, node: (row) => bar(row.seconds / profile.seconds) },
      { heading: "launch", number: true, only: profile.rows.some((row) => row.host), title: "what the host spent beside", text: (row) => (row.host ? timeText(row.host) : ""), key: (row) => row.host },
      { heading: "GFLOP/s", number: true, text: (row) => rateText(row.flops, row.seconds), key: (row) => (row.flops ?? 0) / row.seconds },
      { heading: "GB/s", number: true, text: (row) => rateText(row.bytes, row.seconds), key: (row) => (row.bytes ?? 0) / row.seconds },
      { heading: "of roof", number: true, title: "the least time that the ceilings allow over the time taken", text: (row) => shareText(row.of_roof), key: (row) => row.of_roof },
      { heading: "bound", text: (row) => row.bound ?? "" },
    ].filter((column) => column.only !== false);
    const places = nodes.flatMap((n, i) => (n.measured ? [i] : []));
    const measured = profile.rows.filter((row) => row.value);
    const nodeOf = new Map(measured.map((row, k) => [row, places[k]]));
    const go = (row) => nodeOf.get(row) !== undefined && panels.graph.select(nodeOf.get(row));
    $("step-table").append(tableOf(columns, profile.rows, { sorted: columns.findIndex((column) => column.heading === "time"), chosen: go, label: "Steps" }));
  }

  function roofline() {
    const holder = $("roofline");
    holder.replaceChildren();
    const [device, ceilings] = Object.entries(profile.ceilings)[0] ?? [null, null];
    const rows = profile.rows.filter((row) => row.device === device && row.flops && row.bytes);
    if (!ceilings || !rows.length) {
      holder.append(element("p", "no step with operations, or no ceilings", "soft"));
      return;
    }
    const width = holder.clientWidth || 600;
    const height = Math.min(380, Math.max(260, width * 0.62));
    const box = { left: 58, right: 14, top: 16, bottom: 40 };
    const intensity = (row) => row.flops / row.bytes;
    const rate = (row) => row.flops / row.seconds;
    const ridge = ceilings.flops / ceilings.bytes;
    const low = Math.min(d3.min(rows, intensity), ridge / 4);
    const x = d3.scaleLog([low / 1.6, Math.max(d3.max(rows, intensity), ridge) * 2.5], [box.left, width - box.right]);
    const y = d3.scaleLog([d3.min(rows, rate) / 2, Math.max(ceilings.flops, d3.max(rows, rate)) * 2], [height - box.bottom, box.top]);
    const svg = d3.select(holder).append("svg").attr("width", width).attr("height", height).attr("role", "img")
      .attr("aria-label", `Roofline of ${device}: ${rows.length} steps, operations a second over operations a byte`);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height - box.bottom})`).call(logAxis(d3.axisBottom(x), x, 1));
    svg.append("g").attr("class", "axis").attr("transform", `translate(${box.left},0)`).call(logAxis(d3.axisLeft(y), y, 1e9));
    svg.append("text").attr("class", "label").attr("x", width - box.right).attr("y", height - 4).attr("text-anchor", "end").text("operations a byte");
    svg.append("text").attr("class", "label").attr("x", 4).attr("y", 11).text("GFLOP/s");
    const [x0, x1] = x.domain();
    const roof = [[Math.max(x0, y.domain()[0] / ceilings.bytes), 0], [ridge, 0], [x1, 0]].map(([i]) => [i, Math.min(ceilings.flops, i * ceilings.bytes)]);
    svg.append("path").attr("class", "roof").attr("d", d3.line((d) => x(d[0]), (d) => y(d[1]))(roof));
    const slope = (Math.atan2(y(roof[0][1]) - y(roof[1][1]), x(ridge) - x(roof[0][0])) * 180) / Math.PI;
    const middle = [Math.sqrt(roof[0][0] * ridge), Math.sqrt(roof[0][1] * roof[1][1])];
    svg.append("text").attr("class", "label").attr("transform", `translate(${x(middle[0])},${y(middle[1]) - 7}) rotate(${-slope})`)
      .attr("text-anchor", "middle").text(`${d3.format(",.1f")(ceilings.bytes / 1e9)} GB/s`);
    svg.append("text").attr("class", "label").attr("x", x(x1) - 4).attr("y", y(ceilings.flops) - 6).attr("text-anchor", "end").text(`${d3.format(",.0f")(ceilings.flops / 1e9)} GFLOP/s`);
    const size = d3.scaleSqrt([0, d3.max(rows, (row) => row.seconds)], [2, 13]);
    svg.append("g").selectAll("circle").data(d3.sort(rows, (row) => -row.seconds)).join("circle").attr("class", "step")
      .attr("cx", (row) => x(intensity(row))).attr("cy", (row) => y(rate(row))).attr("r", (row) => size(row.seconds)).style("--tone", (row) => toneOf(row.op))
      .on("pointermove", (event, row) => showHint(event, hintOf(row))).on("pointerleave", hideHint);
  }

  // Whole powers of ten, with 2 and 5 between them where there is room.
  function logAxis(axis, scale, unit) {
    const [low, high] = scale.domain().map((v) => Math.log10(v / unit));
    const factors = high - low > 3 ? [1] : [1, 2, 5];
    const values = d3.range(Math.floor(low), Math.ceil(high) + 1).flatMap((power) => factors.map((factor) => factor * 10 ** power * unit));
    const inside = values.filter((v) => v >= scale.domain()[0] && v <= scale.domain()[1]);
    return axis.tickValues(inside).tickFormat((v) => d3.format("~r")(Number((v / unit).toPrecision(1))));
  }

  function hintOf(row) {
    return `${row.op} ${row.value}\n${row.kernel}\n${timeText(row.seconds)}, ${shareText(row.of_roof)} of the roof (${row.bound})\n${rateText(row.flops, row.seconds)} GFLOP/s, ${rateText(row.bytes, row.seconds)} GB/s`;
  }

  return { draw };
})();
