// mask.js - which tiles each block walks over, as pieces/range_walk.cuh and backward/query_walk.cuh do:
// a tile of queries over tiles of keys; backward a tile of keys over tiles of queries.

// {rows, columns: names; rowsCount, columnsCount, rowTile, columnTile, pack; before, after: how far
// from its own place a row sees columns, null: all; backward}
function walkOf(problem, sees, tiles) {
  const forward = {backward: false, rows: "queries", columns: "keys", rowsCount: problem.seqlen_q, columnsCount: problem.seqlen_kv,
    rowTile: tiles.block_m, columnTile: tiles.block_n, pack: tiles.pack_gqa, before: sees.left, after: sees.right};
  if (!inspect.problem.startsWith("bwd")) return forward;
  return {backward: true, rows: "keys", columns: "queries", rowsCount: problem.seqlen_kv, columnsCount: problem.seqlen_q,
    rowTile: tiles.block_n, columnTile: tiles.block_m, pack: 1, before: sees.right, after: sees.left};
}

// Columns that rows [first, last] see: any of them, and all of them. Half-open.
function visibleColumns(walked, first, last) {
  const {columnsCount: count, before, after} = walked, offset = count - walked.rowsCount;
  const end = row => after === null ? count : Math.max(0, Math.min(count, row + offset + after + 1));
  const begin = row => before === null ? 0 : Math.max(0, row + offset - before);
  return {any: [begin(first), end(last)], all: [begin(last), end(first)]};
}

// The walk of each tile of rows of one head: {first, last, from, to, fullFrom, fullTo}; rows, and
// tiles of columns (half-open) that are visited, and that need no mask.
function walks(walked) {
  const {pack, rowTile, columnTile, columnsCount} = walked, rows = walked.rowsCount * pack, list = [];
  for (let row = 0; row < rows; row += rowTile) {
    const first = Math.floor(row / pack);
    const last = Math.floor((Math.min(row + rowTile, rows) - 1) / pack);
    const {any, all} = visibleColumns(walked, first, last);
    const none = any[1] <= any[0];
    const from = none ? 0 : Math.floor(any[0] / columnTile), to = none ? 0 : Math.ceil(any[1] / columnTile);
    const ragged = all[1] === columnsCount ? Math.floor(columnsCount / columnTile) : Math.floor(all[1] / columnTile);
    const fullFrom = Math.min(to, Math.max(from, Math.ceil(all[0] / columnTile)));
    list.push({first, last, from, to, fullFrom, fullTo: Math.max(fullFrom, Math.min(to, ragged))});
  }
  return list;
}

const drawnRows = 256;  // of tiles of rows; of more, each n-th is drawn

// {frame, move: shows a tile}
function drawMask(width, {walked, list, selected}) {
  const wide = Math.min(width, 560), left = 62, top = 24;
  const columns = Math.max(1, Math.ceil(walked.columnsCount / walked.columnTile));
  const every = Math.ceil(list.length / drawnRows), drawn = list.filter((walk, i) => i % every === 0);
  const cell = Math.min(22, (wide - left - 8) / columns);
  const plotWidth = cell * columns;
  const height = Math.min(Math.max(drawn.length * Math.min(22, Math.max(cell, plotWidth / Math.max(drawn.length, 1) * Math.min(1, walked.rowsCount / walked.columnsCount))), 14), 520);
  const step = height / Math.max(drawn.length, 1);
  const frame = picture(wide, top + height + 8, "Tiles of " + walked.columns + " that each tile of " + walked.rows + " visits");
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
    svg("text", {x: left, y: top - 8}, walked.columns + " 0"),
    svg("text", {x: left + plotWidth, y: top - 8, "text-anchor": "end"}, String(walked.columnsCount)),
    svg("text", {x: left - 6, y: top + 10, "text-anchor": "end"}, walked.backward ? "key 0" : "query 0"),
    height > 30 ? svg("text", {x: left - 6, y: top + height, "text-anchor": "end"}, String(walked.rowsCount)) : null);
  frame.addEventListener("click", event => {
    const box = frame.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) * wide / box.width - top) / step);
    if (row >= 0 && row < drawn.length) selected(row * every);
  });
  return {frame, move: tile => cursor.setAttribute("y", y(Math.floor(tile / every)))};
}

function maskSection(walked, list) {
  const readout = el("p", {class: "readout", "aria-live": "polite"});
  const slider = el("input", {type: "range", min: 0, max: list.length - 1, value: list.length - 1,
    "aria-label": "tile of " + walked.rows, oninput: () => show(Number(slider.value))});
  let shown = null;
  function show(index) {
    const walk = list[index], visited = walk.to - walk.from, masked = visited - (walk.fullTo - walk.fullFrom);
    slider.value = index;
    shown.move(index);
    readout.textContent = "Tile " + index + " of " + walked.rows + " (" + (walk.first === walk.last ? walk.first : walk.first + " to " + walk.last) + ") " +
      (visited === 0 ? "visits none." : "visits " + counted(visited, "tile") + " of " + walked.columns + ", " + walk.from * walked.columnTile + " to " +
      (Math.min(walk.to * walked.columnTile, walked.columnsCount) - 1) + "; " + masked + " of them " + (masked === 1 ? "needs" : "need") + " a mask.");
  }
  const holder = redrawn(width => {
    shown = drawMask(width, {walked, list, selected: show});
    show(Number(slider.value));
    return shown.frame;
  });
  return [el("div", {class: "legend"},
    el("span", {}, el("i", {}), walked.backward ? "every key is seen by every query" : "every row sees every key"),
    el("span", {}, el("i", {class: "partial"}), walked.backward ? "some are not: masked, or beyond the last query" : "some rows do not: masked, or beyond the last key"),
    el("span", {}, el("i", {class: "empty"}), "skipped")),
    holder, el("p", {class: "controls"}, list.length > 1 ? el("label", {class: "row"}, "Tile of " + walked.rows, slider) : null), readout];
}
