// code.js - the source beside the machine code, with lines linked both ways.

// {lines: [{text, origin}], origins, bySource: Map of a source line to indices of lines}
function readListing(listing) {
  if (!listing) return null;
  const lines = listing.text.split("\n").map((text, i) => ({text, origin: listing.origin[i]}));
  const bySource = new Map(), innermost = new Map();
  lines.forEach(({origin}, i) => {
    if (origin < 0) return;
    listing.origins[origin].forEach((line, depth) => {
      if (!bySource.has(line)) bySource.set(line, []);
      const of = bySource.get(line);
      if (of[of.length - 1] !== i) of.push(i);
      if (depth === 0) innermost.set(line, (innermost.get(line) || 0) + 1);
    });
  });
  return {lines, origins: listing.origins, bySource, innermost};
}

function lineElement(number, count, text) {
  const at = text.indexOf("//");
  return el("li", {}, el("span", {}, number), el("span", {}, count || ""),
    el("span", {}, at < 0 ? text : text.slice(0, at), at < 0 ? null : el("span", {class: "comment"}, text.slice(at))));
}
// A list of lines that is one stop of the Tab key; arrows move from linked line to linked line.
function pane(label, pick) {
  const list = el("ol", {});
  const box = el("div", {class: "pane", tabindex: "0", role: "group", "aria-label": label}, list);
  let cursor = -1;
  const choose = index => {
    if (cursor >= 0 && list.children[cursor]) list.children[cursor].classList.remove("cursor");
    cursor = index;
    list.children[index].classList.add("cursor");
    pick(index);
  };
  list.addEventListener("click", event => {
    const line = event.target.closest("li.linked");
    if (line) choose([...list.children].indexOf(line));
  });
  box.addEventListener("keydown", event => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    for (let i = cursor + step; i >= 0 && i < list.children.length; i += step)
      if (list.children[i].classList.contains("linked")) {
        choose(i);
        reveal(box, list.children[i], false);
        return;
      }
  });
  return {box, list, choose, reset: () => { cursor = -1; }};
}
function reveal(box, line, middle) {
  const inside = line.offsetTop;  // panes are positioned
  if (!middle && inside > box.scrollTop + 20 && inside < box.scrollTop + box.clientHeight - 40) return;
  box.scrollTop = inside - box.clientHeight / 3;
}
function mark(list, classes) {
  for (const line of list.querySelectorAll(".marked, .outer")) line.classList.remove("marked", "outer");
  for (const [index, name] of classes) if (list.children[index]) list.children[index].classList.add(name);
}

// {part: the element, start: to be called when it is in the page}
function codeSection(source, listings) {
  const names = Object.keys(listings).filter(name => listings[name]);
  const read = Object.fromEntries(names.map(name => [name, readListing(listings[name])]));
  let current = read[names[0]];
  const readout = el("p", {class: "readout", "aria-live": "polite"});
  const left = pane("generated source", index => pickSource(index + 1));
  const right = pane("machine code", index => pickCode(index));
  source.split("\n").forEach((text, i) => left.list.append(lineElement(i + 1, "", text)));

  function showListing(name) {
    current = read[name];
    right.reset();
    right.list.replaceChildren(...current.lines.map(({text, origin}) => {
      const line = lineElement(origin < 0 ? "" : current.origins[origin][0], "", text);
      if (origin >= 0) line.classList.add("linked");
      return line;
    }));
    [...left.list.children].forEach((line, i) => {
      const count = current.bySource.has(i + 1) ? current.bySource.get(i + 1).length : 0;
      line.children[1].textContent = count ? String(count) : "";
      line.classList.toggle("linked", count > 0);
    });
    mark(left.list, []);
    buttons.forEach(button => button.setAttribute("aria-pressed", String(button.textContent === name)));
    busiest.replaceChildren(...hottest());
    if (current.innermost.size) open(hottestLines()[0][0]);
  }
  function pickSource(line) {
    const marked = current.bySource.get(line) || [];
    mark(right.list, marked.map(i => [i, "marked"]));
    mark(left.list, [[line - 1, "marked"]]);
    if (marked.length) reveal(right.box, right.list.children[marked[0]], true);
    let places = 0;
    marked.forEach((index, i) => { if (i === 0 || index !== marked[i - 1] + 1) ++places; });
    readout.textContent = "Line " + line + ": " + marked.length + (marked.length === 1 ? " instruction" : " instructions") +
      (places > 1 ? " in " + places + " places." : ".");
  }
  function pickCode(index) {
    const origin = current.lines[index].origin;
    const chain = origin < 0 ? [] : current.origins[origin];
    mark(left.list, chain.map((line, depth) => [line - 1, depth === 0 ? "marked" : "outer"]));
    mark(right.list, current.lines.map((line, i) => [i, line.origin === origin ? "marked" : ""]).filter(pair => pair[1]));
    if (chain.length) reveal(left.box, left.list.children[chain[0] - 1], true);
    readout.textContent = "Line " + chain[0] + (chain.length > 1 ? ", inlined into line " + chain.slice(1).join(", that into line ") : "") + ".";
  }
  const hottestLines = () => [...current.innermost].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 6);
  function open(line) {
    left.choose(line - 1);
    reveal(left.box, left.list.children[line - 1], true);
  }
  function hottest() {
    return ["Most instructions: ", ...hottestLines().map(([line, count]) =>
      el("button", {class: "plain", type: "button", onclick: () => open(line)}, "line " + line + " (" + count + ")"))];
  }
  const busiest = el("p", {class: "controls"});
  const buttons = names.map(name => el("button", {class: "plain", type: "button", onclick: () => showListing(name)}, name));
  const result = el("div", {},
    el("p", {}, "A click on a line marks what belongs to it on the other side; arrow keys do the same. The second column of the source is how many instructions come from a line, and from what it calls."),
    el("div", {class: "controls"}, buttons), busiest, readout,
    el("div", {class: "panes"},
      el("div", {}, el("h3", {}, "Source: " + whole(source.split("\n").length) + " lines"), left.box),
      el("div", {}, el("h3", {}, "Code: line of the source, instruction"), right.box)));
  // What is not in the page yet cannot scroll.
  return {part: result, start: () => showListing(names[0])};
}

// Opcodes by how often they stand in the code; not how often they run.
function instructionMix(listing) {
  const counts = new Map();
  for (const line of listing.text.split("\n")) {
    const opcode = /^[0-9a-f]+ {2}(?:@!?U?P[T0-9]+ )?([A-Z0-9]+)/.exec(line);
    if (opcode) counts.set(opcode[1], (counts.get(opcode[1]) || 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}
