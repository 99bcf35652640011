// timeline.js - a model of the main launch: which SM works on which tile when, if a tile takes as long as
// the tiles that it walks over and one more, for its start and end. The GPU deals blocks out as SMs come free.
const mostTiles = 20000;

// Each tile's walk in equal slices, and so many times: of a backward block once for each query head of its group.
function splitTiles(list, splits, times) {
  return list.flatMap(walk => Array.from({length: splits}, (unused, i) => {
    const count = walk.to - walk.from, at = split => Math.floor(count * split / splits);
    return {from: 0, to: (at(i + 1) - at(i)) * times};
  }));
}

// Tiles in the order of tile/tile_order.cuh with all heads in one group: heavy ones first.
function tilesInOrder(list, heads, heavyLast) {
  const order = [];
  for (let i = 0; i < list.length; ++i)
    for (let head = 0; head < heads && order.length < mostTiles; ++head)
      order.push(heavyLast ? list.length - 1 - i : i);
  return order;
}

// {slots: [[{tile, begin, end}]], end, busy}: of each place for a block. Static: blocks of a
// persistent kernel take every slots-th tile.
function schedule(list, order, slots, isStatic) {
  const lanes = Array.from({length: slots}, () => []), free = new Float64Array(slots);
  const firstFree = () => free.reduce((first, time, slot) => time < free[first] ? slot : first, 0);
  let busy = 0;
  order.forEach((tile, index) => {
    const slot = isStatic ? index % slots : firstFree();
    const cost = list[tile].to - list[tile].from + 1;
    lanes[slot].push({tile, begin: free[slot], end: free[slot] + cost});
    free[slot] += cost;
    busy += cost;
  });
  const end = free.reduce((a, b) => Math.max(a, b), 0);
  return {lanes, end, busy: end > 0 ? busy / (end * slots) : 0};
}

function drawTimeline(width, {list, plan, sms, columns}) {
  const left = 52, top = 22, bottomSpace = 42, height = Math.min(sms * 6, Math.max(120, Math.min(420, sms * 3)));
  const most = Math.max(1, ...list.map(walk => walk.to - walk.from + 1));
  const x = linear(0, Math.max(plan.end, 1), left, width - 8);
  const lane = height / plan.lanes.length;
  const frame = picture(width, top + height + bottomSpace, "Tiles over SMs, in time");
  frame.append(svg("rect", {class: "empty", x: left, y: top, width: width - 8 - left, height}));
  const shades = [0.3, 0.5, 0.72, 1], paths = shades.map(() => []);
  const gap = lane > 2.5 ? 0.6 : 0, apart = (width - 8 - left) / Math.max(plan.end, 1) > 1.5 ? 0.7 : 0;
  const perSm = plan.lanes.length / sms;
  plan.lanes.forEach((blocks, slot) => {
    const i = slot % sms * perSm + Math.floor(slot / sms);  // every SM gets a block before one gets two
    for (const {tile, begin, end} of blocks) {
      const shade = Math.min(shades.length - 1, Math.floor((end - begin) / most * shades.length - 1e-9));
      const w = Math.max(0.4, x(end) - x(begin) - apart), h = Math.max(0.5, lane - gap);
      paths[Math.max(0, shade)].push("M" + x(begin).toFixed(1) + " " + (top + i * lane).toFixed(2) + "h" + w.toFixed(2) + "v" + h.toFixed(2) + "h" + (-w).toFixed(2) + "z");
    }
  });
  paths.forEach((path, i) => frame.append(svg("path", {d: path.join(""), fill: "var(--accent)", "fill-opacity": shades[i]})));
  const y = linear(0, sms, top, top + height);
  y.ticks = [0, sms];
  axes(frame, {x, y, left, right: width - 8, top, bottom: top + height, xName: "tiles of " + columns + ", one after another", yName: "SM"});
  return frame;
}
