// Layers of a directed graph without cycles (Sugiyama, Tagawa and Toda, 1981), each step linear but for sorting, so that
// thousands of nodes take a fraction of a second: ranks by the longest path, bends for edges that pass ranks, orders by
// barycentres, and places along a rank by isotonic regression towards the neighbours.
//
// boxes: [{id, width, height}]; edges: [[from, to]] by position in boxes. Gives boxes {x, y} (centres) and edges' points.
function layered(boxes, edges, { across = 26, down = 34, bend = 14 } = {}) {
  const ranks = ranksOf(boxes.length, edges);
  const items = boxes.map((box, i) => ({ box: i, rank: ranks[i], width: box.width, height: box.height, up: [], down: [] }));
  const routes = edges.map(() => null);
  const chains = new Map(); // bends are shared by edges from one node: they go side by side
  edges.forEach(([a, b], i) => {
    const route = [items[a]];
    for (let rank = ranks[a] + 1; rank < ranks[b]; rank++) {
      const key = `${a} ${rank}`;
      let item = chains.get(key);
      if (!item) {
        item = { box: -1, rank, width: bend, height: 0, up: [], down: [] };
        chains.set(key, item);
        items.push(item);
      }
      route.push(item);
    }
    route.push(items[b]);
    for (let k = 1; k < route.length; k++) {
      if (route[k].up.includes(route[k - 1])) continue;
      route[k].up.push(route[k - 1]);
      route[k - 1].down.push(route[k]);
    }
    routes[i] = route;
  });
  const rows = d3.groups(items, (item) => item.rank).sort((a, b) => a[0] - b[0]).map(([, row]) => row);
  order(rows);
  place(rows, across);
  let y = 0;
  for (const row of rows) {
    const height = d3.max(row, (item) => item.height);
    for (const item of row) item.y = y + height / 2;
    y += height + (height ? down : bend);
  }
  return {
    boxes: boxes.map((box, i) => ({ ...box, x: items[i].x, y: items[i].y })),
    edges: routes.map((route) => route.map((item, k) => pointOf(item, k, route.length))),
  };
}

function pointOf(item, k, length) {
  const half = item.height / 2;
  return [item.x, item.y + (k === 0 ? half : k === length - 1 ? -half : 0)];
}

function ranksOf(count, edges) {
  const ranks = new Array(count).fill(0);
  const out = Array.from({ length: count }, () => []);
  const waiting = new Array(count).fill(0);
  for (const [a, b] of edges) {
    out[a].push(b);
    waiting[b]++;
  }
  const todo = d3.range(count).filter((i) => !waiting[i]);
  const sources = [...todo];
  for (let k = 0; k < todo.length; k++) {
    for (const b of out[todo[k]]) {
      ranks[b] = Math.max(ranks[b], ranks[todo[k]] + 1);
      if (!--waiting[b]) todo.push(b);
    }
  }
  for (const i of sources) if (out[i].length) ranks[i] = d3.min(out[i], (b) => ranks[b]) - 1; // next to their readers
  return ranks;
}

function order(rows) {
  for (const row of rows) row.forEach((item, i) => (item.order = i));
  for (let sweep = 0; sweep < 6; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse()) {
      for (const item of row) {
        const near = isDown ? item.up : item.down;
        item.key = near.length ? d3.mean(near, (other) => other.order) : item.order;
      }
      row.sort((a, b) => a.key - b.key || a.order - b.order);
      row.forEach((item, i) => (item.order = i));
    }
  }
}

function place(rows, across) {
  for (const row of rows) {
    let x = 0;
    for (const item of row) {
      item.x = x + item.width / 2;
      x += item.width + across;
    }
    for (const item of row) item.x -= (x - across) / 2;
  }
  for (let sweep = 0; sweep < 8; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse()) {
      const wanted = row.map((item) => {
        const near = isDown ? item.up : item.down;
        return near.length ? d3.mean(near, (other) => other.x) : item.x;
      });
      spread(row, wanted, across);
    }
  }
}

// Nearest places to the wanted ones that keep the order and the gaps: pool adjacent violators.
function spread(row, wanted, across) {
  const offsets = [0];
  for (let i = 1; i < row.length; i++) offsets.push(offsets[i - 1] + (row[i - 1].width + row[i].width) / 2 + across);
  const pools = [];
  wanted.forEach((x, i) => {
    let pool = { sum: x - offsets[i], count: 1 };
    while (pools.length && pools.at(-1).sum / pools.at(-1).count > pool.sum / pool.count) {
      const before = pools.pop();
      pool = { sum: before.sum + pool.sum, count: before.count + pool.count };
    }
    pools.push(pool);
  });
  let i = 0;
  for (const { sum, count } of pools) {
    for (let k = 0; k < count; k++, i++) row[i].x = sum / count + offsets[i];
  }
}
