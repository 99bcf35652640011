// chart.js - scales, axes and frames of pictures. Sizes are those of the viewBox; pictures scale.
function linear(from, to, begin, end) {
  const span = to - from || 1;
  const scale = value => begin + (value - from) / span * (end - begin);
  const step = niceStep(span / 6);
  scale.ticks = [];
  for (let tick = Math.ceil(from / step - 1e-9) * step; tick <= to + step * 1e-9; tick += step)
    scale.ticks.push(Number(tick.toPrecision(12)));
  return scale;
}
function niceStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  for (const factor of [1, 2, 5]) if (step <= factor * power) return factor * power;
  return 10 * power;
}
function logarithmic(from, to, begin, end) {
  const low = Math.log10(from), span = Math.log10(to) - low || 1;
  const scale = value => begin + (Math.log10(value) - low) / span * (end - begin);
  scale.ticks = [];
  const factors = span < 0.9 ? [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8] : span < 1.6 ? [1, 2, 5] : span < 3 ? [1, 3] : [1];
  for (let power = Math.floor(low); power <= low + span + 1; ++power)
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= from * 0.999 && tick <= to * 1.001) scale.ticks.push(Number(tick.toPrecision(3)));
    }
  return scale;
}
// Values in a row, the same distance apart.
function categories(values, begin, end) {
  const step = (end - begin) / Math.max(values.length, 1);
  const scale = value => begin + (values.indexOf(value) + 0.5) * step;
  scale.ticks = values;
  scale.step = step;
  return scale;
}

// A frame for width and height in px of the page: text keeps its size on narrow screens.
function picture(width, height, label) {
  return svg("svg", {class: "picture", style: "max-width:" + width + "px", viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": label});
}
function pageWidth(most) {
  const main = document.querySelector("main");
  const style = getComputedStyle(main);
  return Math.max(280, Math.min(most, main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)));
}
function axes(target, {x, y, left, right, top, bottom, xName, yName, xText = short, yText = short, above = 9}) {
  const group = svg("g", {});
  for (const tick of y.ticks) {
    group.append(svg("line", {class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick)}),
      svg("text", {x: left - 6, y: y(tick) + 4, "text-anchor": "end"}, yText(tick)));
  }
  let last = -Infinity;
  for (const tick of x.ticks) {
    const text = xText(tick), half = 3.2 * String(text).length;
    group.append(svg("line", {class: "axis", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4}));
    if (x(tick) - half < last + 8) continue;  // it would run into the one before
    last = x(tick) + half;
    group.append(svg("text", {x: x(tick), y: bottom + 17, "text-anchor": "middle"}, text));
  }
  group.append(svg("line", {class: "axis", x1: left, x2: right, y1: bottom, y2: bottom}),
    svg("text", {class: "strong", x: right, y: bottom + 34, "text-anchor": "end"}, xName),
    svg("text", {class: "strong", x: left, y: top - above}, yName));
  target.append(group);
}
// An element with what draw(width) returns; made for the width of the page, so anew when that changes.
function redrawn(draw) {
  const holder = el("div", {});
  let width = 0;
  const again = () => {
    const now = pageWidth(1152);
    if (now === width) return;
    width = now;
    holder.replaceChildren(draw(now));
  };
  again();
  window.addEventListener("resize", again);
  return holder;
}
