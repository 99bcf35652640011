// tries.js - the tries of a search as a landscape: against the model's prediction, or by a field.
function drawTries(width, {points, failed, xField, yName, picked}) {
  const left = 62, top = failed.length ? 44 : 28, height = 300, right = width - 10, bottom = top + height;
  const frame = picture(width, bottom + 44, "Each try of the search");
  const ys = points.map(point => point.y);
  const y = logarithmic(Math.min(...ys) * 0.96, Math.max(...ys) * 1.05, bottom, top);
  let x, where;
  if (xField) {
    // Families have fields of their own: configs without this one stand beside the others.
    const valueOf = point => point.config.fields.has(xField) ? point.config.fields.get(xField) : "none";
    const values = [...new Set([...points, ...failed].map(valueOf))].sort((a, b) => a === "none" ? 1 : b === "none" ? -1 : a - b);
    x = categories(values, left, right);
    // Dots of one value lie beside each other by their place, the same in every drawing.
    where = (point, i) => x(valueOf(point)) + ((i * 7919 % 101) / 101 - 0.5) * Math.min(x.step * 0.6, 60);
  } else {
    const xs = [...points, ...failed].map(point => point.estimate);
    x = logarithmic(Math.min(...xs) * 0.96, Math.max(...xs) * 1.05, left, right);
    where = point => x(point.estimate);
  }
  axes(frame, {x, y, left, right, top, bottom, xName: xField || "predicted, \u00b5s", xText: value => value === "none" ? value : short(value), yName: yName + ", \u00b5s", above: failed.length ? 26 : 9});
  if (failed.length) frame.append(svg("text", {x: left - 6, y: top - 8, "text-anchor": "end"}, "failed"));
  if (!xField) {
    const from = Math.max(Math.min(...points.map(p => p.estimate)), Math.min(...ys)), to = Math.min(Math.max(...points.map(p => p.estimate)), Math.max(...ys));
    if (to > from) frame.append(svg("line", {class: "guide", x1: x(from), y1: y(from), x2: x(to), y2: y(to)}));
  }
  points.forEach((point, i) => {
    frame.append(svg("circle", {class: "dot pick", cx: where(point, i), cy: y(point.y), r: 4, onclick: () => picked(point)},
      svg("title", {}, microseconds(point.y) + " " + wordsOf(point.config.text))));
    if (point.chosen) frame.append(svg("circle", {class: "ring", cx: where(point, i), cy: y(point.y), r: 6.5}));
  });
  failed.forEach((point, i) => {
    const cx = where(point, i);
    frame.append(svg("path", {class: "bad pick", d: "M" + (cx - 3) + " " + (top - 15) + "l6 6m0 -6l-6 6", onclick: () => picked(point)}));
  });
  return frame;
}

function landscape(points, failed, yName, hasPrediction) {
  const fields = varyingFields([...points, ...failed].map(point => point.config));
  const readout = el("div", {class: "readout", "aria-live": "polite"});
  const select = el("select", {onchange: () => holder.replaceChildren(draw(pageWidth(1152)))},
    hasPrediction ? el("option", {value: ""}, "predicted time") : null,
    fields.map(name => el("option", {value: name}, name)));
  // At first a field that the page's own config has.
  const first = ["block_n", "block_m", ...fields].find(name => fields.includes(name) && config.fields.has(name));
  if (!hasPrediction && first) select.value = first;
  const draw = width => drawTries(width, {points, failed, xField: select.value, yName, picked: point =>
    readout.replaceChildren((point.y ? microseconds(point.y) : point.status) + "  ", configDetails(point.config.text))});
  const holder = redrawn(draw);
  return [el("p", {class: "controls"}, el("label", {}, "Horizontal axis", select)), holder,
    el("p", {class: "caption"}, "Ringed: the config of this page. " + (failed.length ? "Crosses at the top: tries that failed. " : "") +
      (hasPrediction ? "Dashed: where prediction and measurement agree. " : "") + "A click on a dot shows its config."), readout];
}
