// mask.js - which tiles of keys each tile of queries visits, as pieces/range_walk.cuh walks them.

// Keys that query rows [first, last] see: of any of them, and of all of them. Half-open.
function visibleKeys(problem, window_, first, last) {
  const offset = problem.seqlen_kv - problem.seqlen_q;
  const end = row => window_.right < 0 ? problem.seqlen_kv : Math.max(0, Math.min(problem.seqlen_kv, row + offset + window_.right + 1));
  const begin = row => window_.left < 0 ? 0 : Math.max(0, row + offset - window_.left);
  return {any: [begin(first), end(last)], all: [begin(last), end(first)]};
}

// The walk of each tile of queries of one head: {first, last, from, to, fullFrom, fullTo}; rows of
// queries, and tiles of keys (half-open) that are visited, and that need no mask.
function walks(problem, window_, tiles) {
  const rows = problem.seqlen_q * tiles.pack_gqa, list = [];
  for (let row = 0; row < rows; row += tiles.block_m) {
    const first = Math.floor(row / tiles.pack_gqa);
    const last = Math.floor((Math.min(row + tiles.block_m, rows) - 1) / tiles.pack_gqa);
    const {any, all} = visibleKeys(problem, window_, first, last);
    const none = any[1] <= any[0];
    const from = none ? 0 : Math.floor(any[0] / tiles.block_n), to = none ? 0 : Math.ceil(any[1] / tiles.block_n);
    const ragged = all[1] === problem.seqlen_kv ? Math.floor(problem.seqlen_kv / tiles.block_n) : Math.floor(all[1] / tiles.block_n);
    const fullFrom = Math.min(to, Math.max(from, Math.ceil(all[0] / tiles.block_n)));
    list.push({first, last, from, to, fullFrom, fullTo: Math.max(fullFrom, Math.min(to, ragged))});
  }
  return list;
}

const drawnRows = 256;  // of tiles of queries; of more, each n-th is drawn

function drawMask(holder, width, {problem, tiles, list, selected}) {
  const wide = Math.min(width, 560), left = 62, top = 24;
  const columns = Math.max(1, Math.ceil(problem.seqlen_kv / tiles.block_n));
  const every = Math.ceil(list.length / drawnRows), drawn = list.filter((walk, i) => i % every === 0);
  const cell = Math.min(22, (wide - left - 8) / columns);
  const plotWidth = cell * columns;
  const height = Math.min(Math.max(drawn.length * Math.min(22, Math.max(cell, plotWidth / Math.max(drawn.length, 1) * Math.min(1, problem.seqlen_q / problem.seqlen_kv))), 14), 520);
  const step = height / Math.max(drawn.length, 1);
  const frame = picture(wide, top + height + 8, "Tiles of keys that each tile of queries visits");
  frame.style.maxWidth = wide + "px";
  const x = tile => left + tile * cell, y = row => top + row * step;
  frame.append(svg("rect", {class: "empty", x: left, y: top, width: plotWidth, height}));
  const run = (row, from, to) => to > from ? "M" + x(from) + " " + y(row) + "h" + (to - from) * cell + "v" + step + "h" + -(to - from) * cell + "z" : "";
  let full = "", partial = "";
  drawn.forEach((walk, row) => {
    partial += run(row, walk.from, walk.fullFrom) + run(row, walk.fullTo, walk.to);
    full += run(row, walk.fullFrom, walk.fullTo);
  });
  frame.append(svg("path", {class: "full", d: full}), svg("path", {class: "partial", d: partial}));
  if (cell >= 5 && step >= 5) {
    let lines = "";
    for (let i = 1; i < columns; ++i) lines += "M" + x(i) + " " + top + "v" + height;
    for (let i = 1; i < drawn.length; ++i) lines += "M" + left + " " + y(i) + "h" + plotWidth;
    frame.append(svg("path", {d: lines, stroke: "var(--paper)", fill: "none", "stroke-width": 1}));
  }
  const cursor = svg("rect", {class: "cursor", x: left, width: plotWidth, height: Math.max(step, 2)});
  frame.append(cursor,
    svg("text", {x: left, y: top - 8}, "keys 0"),
    svg("text", {x: left + plotWidth, y: top - 8, "text-anchor": "end"}, String(problem.seqlen_kv)),
    svg("text", {x: left - 6, y: top + 10, "text-anchor": "end"}, "query 0"),
    height > 30 ? svg("text", {x: left - 6, y: top + height, "text-anchor": "end"}, String(problem.seqlen_q)) : null);
  frame.addEventListener("click", event => {
    const box = frame.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) * wide / box.width - top) / step);
    if (row >= 0 && row < drawn.length) selected(row * every);
  });
  holder.append(frame);
  return tile => cursor.setAttribute("y", y(Math.floor(tile / every)));
}

function maskSection(problem, window_, tiles, list) {
  const holder = el("div", {}), readout = el("p", {class: "readout", "aria-live": "polite"});
  const slider = el("input", {type: "range", min: 0, max: list.length - 1, value: list.length - 1,
    "aria-label": "tile of queries", oninput: () => show(Number(slider.value))});
  let move = () => {};
  function show(index) {
    const walk = list[index], visited = walk.to - walk.from, masked = visited - (walk.fullTo - walk.fullFrom);
    slider.value = index;
    move(index);
    readout.textContent = "Tile " + index + " of queries (" + (walk.first === walk.last ? walk.first : walk.first + " to " + walk.last) + ") " +
      (visited === 0 ? "sees no key." : "visits " + counted(visited, "tile") + " of keys, " + walk.from * tiles.block_n + " to " +
      (Math.min(walk.to * tiles.block_n, problem.seqlen_kv) - 1) + "; " + masked + " of them " + (masked === 1 ? "needs" : "need") + " a mask.");
  }
  redrawn(holder, (into, width) => {
    move = drawMask(into, width, {problem, tiles, list, selected: show});
    show(Number(slider.value));
  });
  return [el("div", {class: "legend"},
    el("span", {}, el("i", {}), "every row sees every key"),
    el("span", {}, el("i", {class: "partial"}), "some rows do not: masked, or beyond the last key"),
    el("span", {}, el("i", {class: "empty"}), "skipped")),
    holder, el("p", {class: "controls"}, list.length > 1 ? el("label", {class: "row"}, "Tile of queries", slider) : null), readout];
}
