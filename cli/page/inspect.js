// inspect.js - fills the sections of the page from the data.
const inspect = data.inspect;
const config = configOf(inspect.config);
[inspect, ...inspect.candidates, ...inspect.measured, ...data.cut_kinds].forEach((each, i) => words.set(each.config, data.words[i]));
const device = inspect.device;

const problem = {seqlen_q: 1, seqlen_kv: 1, batch: 1, num_heads_q: 1, num_heads_kv: 1};
for (const [name, value] of valuesOf(inspect.problem)) problem[name] = Number(value);
const tiles = inspect.tiles;
const tiled = tiles.block_m > 0 && tiles.block_n > 0 && problem.seqlen_q > 0;
const walked = walkOf(problem, inspect.sees, tiles);
const list = tiled ? walks(walked) : [];
const launch = inspect.launches.find(each => each.role === "main");
const ownTry = inspect.measured.find(each => each.config === inspect.config && each.status === "ok");
const bestTry = inspect.measured.find(each => each.status === "ok");
// Of the lengths of the bucket, where something was measured of them; else of the problem's own.
const estimates = new Map(inspect.candidates.map(each => [each.config, each.estimate_us]));
if (inspect.measured.length === 0 && inspect.reach.time_us > 0) estimates.set(inspect.config, inspect.reach.time_us);

// What the model does not know of: of block masks it knows the density.
const textHides = inspect.sees.more_hidden && !/ blocks=/.test(inspect.problem);
const isCounted = data.timed.flops !== null;
function throughput(us) { return data.timed.flops / us * 1e-6; }

function glance() {
  const peak = data.roofs[0], compiled = inspect.compiled, ok = compiled && compiled.ok;
  const estimate = estimates.get(inspect.config);
  facts(document.querySelector("#glance .facts"), [
    ["GPU", device.name, device.arch + ", " + device.num_sms + " SMs" + (device.ordinal < 0 ? ", not present" : "")],
    ["Kernel family", config.family, inspect.provenance],
    ownTry ? ["Measured", microseconds(ownTry.time_us), "noise " + percent(ownTry.noise)] : ["Measured", "not yet", "attnforge tune does it"],
    ["Predicted", estimate ? microseconds(estimate) : "-", "by the model" + (textHides ? ", as if the text hid nothing more than a window" : "")],
    ["Throughput", !isCounted ? "-" : ownTry ? digits(throughput(ownTry.time_us)) + " TFLOP/s" : estimate ? digits(throughput(estimate)) + " TFLOP/s" : "-",
      (!isCounted ? data.timed.flops_unknown + "; " : ownTry ? "" : "if the prediction holds; ") + "peak " + short(peak.tflops_per_s)],
    ["Work", inspect.flops === null ? inspect.flops_unknown : digits(inspect.flops * 1e-9) + " GFLOP", bytes(inspect.minimum_bytes) + " to move at least"],
    ["Registers", ok ? compiled.registers + " per thread" : "-", ok ? compiled.spill_bytes + " bytes of spills" : "not compiled"],
    ["Shared memory", launch ? bytes(launch.smem_bytes) : "-", "per block"],
    ["Occupancy", ok ? compiled.blocks_per_sm + (compiled.blocks_per_sm === 1 ? " block per SM" : " blocks per SM") : "-", ok ? percent(compiled.occupancy) + " of the warps" : ""],
    ["Search space", whole(inspect.num_candidates) + " candidates", whole(inspect.num_cut) + " cut, " + inspect.measured.length + " measured"],
  ]);
  const why = document.querySelector("#glance .why");
  why.textContent = "Why this config: " + plain(inspect.why) + ".";
  if (inspect.slow_path) why.after(el("p", {class: "warning"}, inspect.slow_path));
  if (inspect.not_compiled) why.after(el("p", {class: "warning"}, "Not compiled: " + inspect.not_compiled));
  if (compiled && !compiled.ok) why.after(el("p", {class: "warning"}, "The source does not compile:"), el("pre", {}, compiled.log));
}

// The block mask that was given, as the program drew it.
function blockMaskPart(into, mask) {
  const drawn = new DOMParser().parseFromString(mask.svg, "image/svg+xml").documentElement;
  drawn.setAttribute("class", "block-mask");
  into.append(document.importNode(drawn, true), note("One head: queries downwards, keys to the right; dark blocks are full, light ones partial."));
}

function maskPart() {
  const into = section("mask");
  if (data.block_mask) into.append(el("p", {}, data.block_mask.text + (data.block_mask.merge ? "; " + data.block_mask.merge : "") + "."));
  const inBlocks = data.block_mask && (inspect.sees.more_hidden || !tiled);  // else the window says all, and its tiles are drawn
  if (inBlocks) blockMaskPart(into, data.block_mask);
  if (!tiled) return into.append(el("p", {}, problem.seqlen_q > 0 ? "This family does not walk over tiles of keys." : "There is no query."));
  const {rows, columns} = walked;
  const visited = list.reduce((sum, walk) => sum + walk.to - walk.from, 0);
  const all = list.length * Math.ceil(walked.columnsCount / walked.columnTile);
  into.append(el("p", {}, "One head: " + counted(list.length, "tile") + " of " + walked.rowTile + " " + (walked.pack > 1 ? "rows" : rows) +
    (walked.pack > 1 ? " (" + walked.pack + " query heads of a K/V head in each)" : "") + (list.length === 1 ? ", which walks over tiles of " : ", which walk over tiles of ") +
    walked.columnTile + " " + columns + ". " + (inBlocks ? "" : whole(visited) + " of " + whole(all) + " pairs of tiles are visited, " + percent(visited / all) +
    (inspect.sees.more_hidden ? ", as far as the window says." : "."))));
  if (inspect.sees.more_hidden) {
    const listed = / blocks=/.test(inspect.problem) || inspect.launches.some(each => each.kernel.startsWith("key_lists"));
    into.append(el("p", {class: "note"}, listed ? "Of the pairs of tiles" + (walked.before === null && walked.after === null ? "" : " in the window") + ", those are computed in which the mask shows something." :
      "The mask's text hides more: in these pairs of tiles it is asked of each query and key."));
  }
  if (/lengths=(packed|used)/.test(inspect.problem))
    into.append(note("Only the GPU knows how long each sequence is; this is one of the longest that there may be."));
  if (!inBlocks) into.append(...maskSection(walked, list).filter(Boolean));
}

function choicePart() {
  const into = section("choice");
  into.append(el("p", {}, wordsOf(inspect.config)));
  const grid = el("dl", {class: "facts"});
  facts(grid, [...config.fields].map(([name, value]) => [name, String(value)]));
  into.append(el("details", {}, el("summary", {}, "Every field, and the text that --config takes"), grid,
    el("p", {}, el("code", {}, inspect.config))));
}

// A table of configs in words; or, of one family, with what they differ in as columns.
function configsTable(rows, table) {
  const families = [...new Set(rows.map(row => row.parsed.family))], holder = el("div", {});
  const inWords = {name: "config", value: row => wordsOf(row.parsed.text), show: row => configElement(row.parsed.text)};
  const select = el("select", {onchange: () => show()}, el("option", {value: ""}, "in words"), families.map(name => el("option", {value: name},
    "fields of " + name + " (" + whole(rows.filter(row => row.parsed.family === name).length) + ")")));
  function show() {
    const own = rows.filter(row => !select.value || row.parsed.family === select.value);
    holder.replaceChildren(table(own, !select.value ? [inWords] : varyingFields(own.map(row => row.parsed)).map(name =>
      ({name, number: true, value: row => row.parsed.fields.get(name), show: row => String(row.parsed.fields.get(name))}))));
  }
  show();
  return [el("p", {class: "controls"}, el("label", {}, "Configs", select)), holder];
}

function candidatesPart() {
  const into = section("candidates");
  const rows = inspect.candidates.map((each, i) => ({rank: i + 1, parsed: configOf(each.config), estimate: each.estimate_us}));
  const times = new Map(inspect.measured.filter(each => each.status === "ok").map(each => [each.config, each.time_us]));
  for (const row of rows) row.measured = times.get(row.parsed.text) ?? null;
  into.append(el("p", {}, whole(inspect.num_candidates) + " configs are worth a try. Ranked by the model" +
    (times.size ? "; where one was measured, its time stands beside the prediction." : ".")));
  into.append(...configsTable(rows, (own, configs) => sortableTable({caption: "Candidates", rows: own,
    chosen: row => row.parsed.text === inspect.config, sortBy: {column: 0, falling: false}, columns: [
      {name: "rank", number: true, value: row => row.rank},
      {name: "predicted \u00b5s", number: true, value: row => row.estimate, show: row => digits(row.estimate)},
      times.size ? {name: "measured \u00b5s", number: true, value: row => row.measured, show: row => row.measured === null ? "" : digits(row.measured)} : null,
      ...configs,
    ].filter(Boolean)})));
  into.append(el("h3", {}, whole(inspect.num_cut) + " cut"));
  into.append(sortableTable({caption: "Cut configs", rows: data.cut_kinds, shown: 12, columns: [
    {name: "configs", number: true, value: row => row.count, show: row => whole(row.count)},
    {name: "reason, of one of them", text: true, value: row => row.reason, show: row => el("div", {class: "cell"}, row.reason)},
    {name: "that one", text: true, value: row => wordsOf(row.config), show: row => configElement(row.config)},
  ]}));
  if (inspect.rejected_families.length)
    into.append(el("h3", {}, "Families not looked at"), el("ul", {}, inspect.rejected_families.map(text => el("li", {}, text))));
}

function codePart() {
  const into = section("code");
  if (data.no_sass) into.append(note("No SASS: " + data.no_sass + "."));
  if (data.sass || data.ptx) {
    const {part, start} = codeSection(inspect.source, {SASS: data.sass, PTX: data.ptx});
    into.append(part);
    start();
  } else {
    into.append(el("p", {class: "note"}, inspect.not_compiled ? "Not compiled: " + inspect.not_compiled : "There is no code to show."),
      el("div", {class: "pane", tabindex: "0"}, el("ol", {}, inspect.source.split("\n").map((text, i) => lineElement(i + 1, "", text)))));
  }
  if (data.sass) {
    const mix = instructionMix(data.sass), most = mix.length ? mix[0][1] : 1;
    into.append(el("h3", {}, "Instructions in the code, by opcode"), el("div", {class: "bars"},
      mix.slice(0, 14).flatMap(([opcode, count]) => [el("span", {class: "mono"}, opcode),
        el("div", {}, el("i", {class: "limit", style: "width:" + 100 * count / most + "%"})), el("span", {}, whole(count))])));
  }
}

function resourcesPart() {
  const into = section("resources"), compiled = inspect.compiled;
  if (!compiled || !compiled.ok || !launch) return into.append(note("Known only of compiled code."));
  const threads = launch.block[0] * launch.block[1] * launch.block[2], blocks = compiled.blocks_per_sm;
  const rows = [
    ["registers", blocks * threads * compiled.registers, data.limits.registers_per_sm, compiled.registers + " x " + threads + " threads per block"],
    ["shared memory", blocks * compiled.smem_bytes, data.limits.smem_per_sm_bytes, bytes(compiled.smem_bytes) + " per block"],
    ["threads", blocks * threads, data.limits.max_threads_per_sm, threads + " per block"],
    ["blocks", blocks, data.limits.max_blocks_per_sm, ""],
  ];
  // What one more block would not fit.
  const binds = row => (blocks + 1) * row[1] / Math.max(blocks, 1) > row[2];
  const limits = rows.filter(binds).map(row => (row[0] === "shared memory" ? "too much " : "too many ") + row[0]);
  into.append(el("p", {}, counted(blocks, "block") + " of " + threads + " threads " + (blocks === 1 ? "is" : "are") +
    " resident on an SM at a time" + (limits.length ? "; one more would need " + limits.join(" and ") : "") + "."));
  into.append(el("div", {class: "bars notes"}, rows.flatMap(row => [el("span", {}, row[0]),
    el("div", {}, el("i", {class: binds(row) ? "limit" : "", style: "width:" + Math.min(100, 100 * row[1] / row[2]) + "%"})),
    el("span", {}, percent(row[1] / row[2]) + " of " + whole(row[2]) + (row[3] ? " (" + row[3] + ")" : ""))])));
  if (compiled.log) into.append(el("h3", {}, "What the compiler said"), el("pre", {class: "scroll"}, compiled.log));
}

function launchPart() {
  const into = section("launch");
  if (!launch) return into.append(el("p", {}, "None: there is nothing to compute."));
  into.append(sortableTable({caption: "Launches", rows: inspect.launches, columns: [
    {name: "role", value: row => row.role},
    {name: "kernel", value: row => row.kernel, show: row => el("code", {}, row.kernel)},
    {name: "grid", value: row => row.grid[0], show: row => row.grid.join(" x ")},
    {name: "threads", value: row => row.block[0], show: row => row.block.join(" x ")},
    {name: "shared memory", number: true, value: row => row.smem_bytes, show: row => bytes(row.smem_bytes)},
  ]}), el("p", {}, "Workspace of a run: " + bytes(launch.workspace_bytes) + "."));
  if (!tiled) return;
  const perHead = walked.backward ? problem.num_heads_q / problem.num_heads_kv : walked.pack;
  const heads = problem.batch * problem.num_heads_q / perHead;
  const shared = !walked.backward && config.fields.get("grid") === 3;  // each block has a share of the keys of all tiles
  const splits = walked.backward ? 1 : shared ? Math.max(1, Math.ceil(launch.grid[0] / (list.length * heads))) : config.fields.get("num_splits") || 1;
  const heavyLast = !walked.backward && inspect.sees.right !== null;
  const slices = splitTiles(list, splits, walked.backward ? perHead : 1);
  const order = tilesInOrder(slices, heads, heavyLast);
  const perSm = Math.max(1, (inspect.compiled && inspect.compiled.blocks_per_sm) || config.fields.get("blocks_per_sm") || 1);
  const all = slices.length * heads, blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
  const persistent = shared || blocks < all, slots = device.num_sms * perSm;
  const plan = schedule(slices, order, slots, persistent && config.fields.get("grid") === 1);
  into.append(el("h3", {}, "Tiles over SMs"),
    el("p", {}, counted(list.length * heads, "tile") + " of " + walked.rows + (splits > 1 && !shared ? ", the " + walked.columns + " of each in " + splits + " splits" : "") + ": " +
      short(all / slots) + " for each of " + whole(slots) + " places (" + device.num_sms + " SMs x " + perSm + "). " +
      "If one took as long as its tiles of " + walked.columns + ", and one more for its start and end, places would be busy " + percent(plan.busy) + " of the time. " +
      (shared ? "Blocks have equal shares of the " + walked.columns + " of all tiles, which is drawn as if each tile had its own blocks. " :
        persistent ? "Blocks stay and take one after another. " : "Each block has one. ") + (heavyLast ? "Heavy tiles come first." : "")));
  into.append(redrawn(width => drawTimeline(width, {list: slices, plan, sms: device.num_sms, columns: walked.columns})), el("p", {class: "caption"}, "A model, not a trace: " +
    (all > order.length ? "the first " + whole(order.length) + " of them; " : "") +
    "the stronger the colour, the more tiles of " + walked.columns + ". Groups of heads that share the L2, loads" +
    (inspect.sees.more_hidden ? ", what the mask hides beside its window" : "") + " and other kernels are left out."));
}

function rooflinePart() {
  const into = section("roofline");
  if (!isCounted) return into.append(note("Not known: " + data.timed.flops_unknown + "."));
  const intensity = data.timed.flops / data.timed.bytes, memory = data.memory_gb_per_s * 1e-3;  // TFLOP/s per FLOP/byte
  const peak = data.roofs[0].tflops_per_s, bound = Math.min(peak, memory * intensity);
  const estimate = estimates.get(inspect.config);
  if (!(intensity > 0) || !(memory > 0)) return into.append(note("There is no work."));
  const marks = [];
  if (ownTry) marks.push({at: throughput(ownTry.time_us), name: "measured", kind: "dot"});
  if (bestTry && bestTry !== ownTry) marks.push({at: throughput(bestTry.time_us), name: "best of the search", kind: "dot"});
  if (estimate) marks.push({at: throughput(estimate), name: "predicted", kind: "hollow"});
  into.append(el("p", {}, "The problem does " + short(intensity) + " FLOP for each byte that must move; the GPU needs " + short(peak / memory) +
    " to be busy. So the bound is " + (bound < peak ? "memory" : "arithmetic") + ": " + short(bound) + " TFLOP/s" +
    (marks.length ? "; " + marks.map(mark => mark.name + " " + percent(mark.at / bound)).join(", ") + " of it." : ".")));
  const holder = redrawn(full => {
    const width = Math.min(full, 760), left = 56, right = width - 10, top = 28, bottom = 300;
    const frame = picture(width, bottom + 44, "Roofline");
    const low = Math.min(intensity, peak / memory) / 8, high = Math.max(intensity, peak / memory) * 8;
    const least = Math.min(memory * low, ...marks.map(mark => mark.at / 2));
    const x = logarithmic(low, high, left, right), y = logarithmic(Math.max(least, peak * 1e-5), peak * 2, bottom, top);
    axes(frame, {x, y, left, right, top, bottom, xName: "FLOP per byte of q, k, v, o", yName: "TFLOP/s"});
    const floor = Math.max(low, Math.max(least, peak * 1e-5) / memory);
    frame.append(svg("line", {class: "roof", x1: x(floor), y1: y(memory * floor), x2: x(peak / memory), y2: y(peak)}));
    data.roofs.forEach((roof, i) => {
      const from = roof.tflops_per_s / memory;
      if (roof.tflops_per_s <= Math.max(least, peak * 1e-5)) return;
      frame.append(svg("line", {class: i === 0 ? "roof" : "guide", x1: x(Math.max(from, low)), y1: y(roof.tflops_per_s), x2: right, y2: y(roof.tflops_per_s)}),
        width < 560 ? "" : svg("text", {x: right, y: y(roof.tflops_per_s) - 5, "text-anchor": "end"}, roof.name + " " + short(roof.tflops_per_s)));
    });
    const middle = Math.sqrt(floor * peak / memory);
    frame.append(svg("text", {x: x(middle) + 8, y: y(memory * middle) + 14}, "memory"),
      svg("line", {class: "guide", x1: x(intensity), x2: x(intensity), y1: top, y2: bottom}));
    // The predicted one last, but never over the measured one: hollow.
    for (const {at, name, kind} of marks)
      frame.append(svg("circle", {class: kind === "dot" ? "full" : "hollow", cx: x(intensity), cy: y(at), r: 5, "fill-opacity": kind === "dot" ? 1 : 0}));
    const labels = marks.map(mark => ({...mark, y: y(mark.at) + 4})).sort((a, b) => a.y - b.y);
    const side = x(intensity) > (left + right) / 2 ? -1 : 1;
    labels.forEach((label, i) => {
      if (i > 0) label.y = Math.max(label.y, labels[i - 1].y + 14);
      frame.append(svg("text", {class: "strong", x: x(intensity) + side * 10, y: label.y, "text-anchor": side < 0 ? "end" : "start"}, label.name + " " + short(label.at)));
    });
    return frame;
  });
  into.append(holder, el("p", {class: "caption"}, "At the highest clocks: memory " + whole(data.memory_gb_per_s) + " GB/s; " +
    data.roofs.map(roof => roof.name + " " + short(roof.tflops_per_s) + " TFLOP/s").join("; ") + "."));
}

function triesPart() {
  const into = section("tries");
  const point = (each, y) => ({config: configOf(each.config), estimate: each.estimate_us, y, status: each.status, chosen: each.config === inspect.config});
  const good = inspect.measured.filter(each => each.status === "ok" && each.time_us > 0);
  const failed = inspect.measured.filter(each => each.status !== "ok");
  if (inspect.measured_as !== inspect.problem)
    into.append(el("p", {class: "note"}, "Lengths are rounded to buckets: times are of ", el("code", {}, inspect.measured_as)));
  if (good.length === 0) {
    into.append(el("p", {}, "Nothing was measured yet. This does it: ", el("code", {}, "attnforge tune " + inspect.problem)));
    const own = {config: inspect.config, estimate_us: inspect.reach.time_us};
    const predicted = (inspect.candidates.some(each => each.config === own.config) ? inspect.candidates : [own, ...inspect.candidates])
      .filter(each => each.estimate_us > 0);
    if (predicted.length > 1) {
      into.append(el("p", {}, "Until then, the landscape as the model sees it:"),
        ...landscape(predicted.map(each => point(each, each.estimate_us)), [], "predicted", false));
    }
  } else {
    into.append(el("p", {}, counted(good.length, "config") + (good.length === 1 ? " was measured" : " were measured") + (failed.length ? ", " + failed.length + " failed" : "") + ". The fastest takes " +
      microseconds(good[0].time_us) + ", the slowest " + microseconds(good[good.length - 1].time_us) + "."));
    into.append(...landscape(good.map(each => point(each, each.time_us)), failed.map(each => point(each, 0)), "measured", true));
    into.append(el("h3", {}, "Every try"));
    const rows = inspect.measured.map(each => ({...each, parsed: configOf(each.config)}));
    into.append(...configsTable(rows, (own, configs) => sortableTable({caption: "Tries", rows: own, chosen: row => row.config === inspect.config, columns: [
      {name: "measured \u00b5s", number: true, value: row => row.status === "ok" ? row.time_us : null, show: row => row.status === "ok" ? digits(row.time_us) : "-"},
      {name: "noise", number: true, value: row => row.status === "ok" ? row.noise : null, show: row => row.status === "ok" ? percent(row.noise) : "-"},
      {name: "predicted \u00b5s", number: true, value: row => row.estimate_us, show: row => digits(row.estimate_us)},
      {name: "status", value: row => row.status},
      ...configs,
    ]})));
  }
}

section("problem").textContent = shortProblem(inspect.problem);
section("made").textContent = "on " + plain(device.name) + ", attnforge " + plain(data.attnforge) + ", " + data.made.slice(0, 10);
navigation();
for (const part of [glance, maskPart, choicePart, candidatesPart, codePart, resourcesPart, launchPart, rooflinePart, triesPart]) part();
document.querySelector("footer").append("The numbers are those of attnforge inspect --json; they stand in this file as one block of JSON. Digest of the source: ", el("code", {}, inspect.digest));
