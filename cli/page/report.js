// report.js - fills the sections of the page of a whole database.
data.rows.forEach((row, i) => words.set(row.config, data.words[i]));
const now = Date.parse(data.made);
const rows = data.rows.map((row, i) => ({...row, number: i + 1, age: row.estimated ? null : (now - Date.parse(row.measured_at)) / 86400000}));
const measured = rows.filter(row => !row.estimated && row.time_us > 0);
const days = age => Number.isFinite(age) ? (age < 1 ? "today" : counted(Math.round(age), "day")) : "-";
const classes = [...new Set(rows.map(row => row.device_class))];

function glance() {
  const ages = rows.map(row => row.age).filter(Number.isFinite).sort((a, b) => a - b);
  facts(document.querySelector("#glance .facts"), [
    ["Problems", whole(rows.length), counted(classes.length, "GPU class", "GPU classes")],
    ["Tries", whole(data.tries), rows.reduce((sum, row) => sum + row.failures, 0) + " failed"],
    ["Gain over untuned", data.mean_gain > 0 ? data.mean_gain.toFixed(2) + "x" : "-", "geometric mean"],
    ["Age", ages.length ? days(ages[Math.floor(ages.length / 2)]) : "-", ages.length ? "oldest " + days(ages[ages.length - 1]) : ""],
    ["Stale", String(data.stale), data.stale === 1 ? "winner measured before its template was changed" : "winners measured before their template was changed"],
    ["File", bytes(data.file_bytes), counted(data.cubins, "cubin") + ", health: " + data.health],
  ]);
}

function winners() {
  section("winners").append(sortableTable({caption: "Winners", rows, shown: 40, columns: [
    {name: "#", number: true, value: row => row.number},
    {name: "problem", value: row => row.problem, show: row => shortProblem(row.problem)},
    {name: "time \u00b5s", number: true, value: row => row.estimated ? null : row.time_us, show: row => row.estimated ? "estimate" : digits(row.time_us)},
    {name: "noise", number: true, value: row => row.estimated ? null : row.noise, show: row => row.estimated ? "" : percent(row.noise)},
    {name: "untuned \u00b5s", number: true, value: row => row.untuned_us || null, show: row => row.untuned_us ? digits(row.untuned_us) : ""},
    {name: "gain", number: true, value: row => row.gain || null, show: row => row.gain ? row.gain.toFixed(2) + "x" : ""},
    {name: "tries", number: true, value: row => row.tries},
    {name: "rigor", value: row => row.rigor},
    {name: "age", number: true, value: row => row.age, show: row => days(row.age)},
    {name: "code", value: row => row.state},
    {name: "GPU", value: row => row.gpu},
    {name: "config", text: true, value: row => wordsOf(row.config), show: row => configElement(row.config)},
  ]}));
}

function gains() {
  const into = section("gains"), list = measured.filter(row => row.gain > 0).sort((a, b) => b.gain - a.gain);
  if (list.length === 0) return into.append(note("Nothing was measured yet."));
  into.append(el("p", {}, "How much faster the winner is than the config that the model likes most, which a plan takes without tuning. Each bar is a problem, by its number in the table above."));
  const holder = redrawn(width => {
    const left = 46, top = 28, bottom = 200, right = width - 6;
    const frame = picture(width, bottom + 44, "Gain of each problem");
    const most = Math.ceil(20 * Math.max(1.05, ...list.map(row => row.gain))) / 20, y = linear(1, most, bottom, top), step = (right - left) / list.length;
    const x = value => value;
    x.ticks = [];
    axes(frame, {x, y, left, right, top, bottom, xName: "problems", yName: "untuned / tuned", yText: value => value.toFixed(2) + "x"});
    list.forEach((row, i) => {
      const height = Math.max(1, bottom - y(Math.max(row.gain, 1)));
      frame.append(svg("rect", {class: "bar", x: left + i * step + step * 0.1, width: Math.min(step * 0.8, 40), y: bottom - height, height},
        svg("title", {}, row.gain.toFixed(2) + "x " + row.problem)));
      if (step > 16) frame.append(svg("text", {x: left + i * step + step * 0.1 + Math.min(step * 0.8, 40) / 2, y: bottom + 16, "text-anchor": "middle"}, row.number));
    });
    return frame;
  });
  into.append(holder);
}

function model() {
  const into = section("model"), points = measured.flatMap(row => row.points).filter(([estimate, time]) => estimate > 0 && time > 0);
  if (points.length === 0) return into.append(note("Nothing was measured yet."));
  const errors = points.map(([estimate, time]) => Math.abs(Math.log(time / estimate))).sort((a, b) => a - b);
  const half = Math.exp(errors[Math.floor(errors.length / 2)]);
  into.append(el("p", {}, counted(points.length, "try", "tries") + " that ran: predicted and measured. Half of them lie within a factor of " + half.toFixed(2) + " of the prediction."));
  const every = Math.ceil(points.length / 4000), drawn = points.filter((point, i) => i % every === 0);
  const holder = redrawn(full => {
    const width = Math.min(full, 640), left = 60, right = width - 10, top = 28, bottom = top + Math.min(420, width - 80);
    const frame = picture(width, bottom + 44, "Predicted and measured times");
    const low = 0.9 * Math.min(...drawn.flat()), high = 1.1 * Math.max(...drawn.flat());
    const x = logarithmic(low, high, left, right), y = logarithmic(low, high, bottom, top);
    axes(frame, {x, y, left, right, top, bottom, xName: "predicted, \u00b5s", yName: "measured, \u00b5s"});
    frame.append(svg("line", {class: "guide", x1: x(low), y1: y(low), x2: x(high), y2: y(high)}));
    for (const [estimate, time] of drawn) frame.append(svg("circle", {class: "dot", cx: x(estimate), cy: y(time), r: 3}));
    return frame;
  });
  into.append(holder);
  if (every > 1) into.append(el("p", {class: "caption"}, "Every " + every + "th try is drawn."));
}

function gpus() {
  section("gpus").append(sortableTable({caption: "GPUs", rows: classes.map(name => {
    const own = rows.filter(row => row.device_class === name), gained = own.filter(row => row.gain > 0);
    return {name, problems: own.length, tries: own.reduce((sum, row) => sum + row.tries, 0),
      gain: gained.length ? Math.exp(gained.reduce((sum, row) => sum + Math.log(row.gain), 0) / gained.length) : null,
      stale: own.filter(row => row.state === "stale").length, drivers: [...new Set(own.map(row => row.driver).filter(Boolean))].join(", "),
      nvrtc: [...new Set(own.map(row => row.nvrtc).filter(Boolean))].join(", ")};
  }), columns: [
    {name: "GPU class", text: true, value: row => row.name},
    {name: "problems", number: true, value: row => row.problems},
    {name: "tries", number: true, value: row => row.tries},
    {name: "gain", number: true, value: row => row.gain, show: row => row.gain ? row.gain.toFixed(2) + "x" : ""},
    {name: "stale", number: true, value: row => row.stale},
    {name: "drivers", value: row => row.drivers},
    {name: "NVRTC", value: row => row.nvrtc},
  ]}));
}

function stale() {
  const into = section("stale"), list = rows.filter(row => row.state !== "today");
  if (list.length === 0) return into.append(el("p", {}, "None: every winner is of the code of today."));
  into.append(el("p", {}, "Their templates were changed since, or are not known to this version. Plans still take them, as estimates; tuning again measures them."),
    sortableTable({caption: "Stale winners", rows: list, columns: [
      {name: "code", value: row => row.state},
      {name: "age", number: true, value: row => row.age, show: row => days(row.age)},
      {name: "GPU", value: row => row.gpu},
      {name: "tune again", text: true, value: row => row.problem, show: row => el("code", {}, "attnforge tune " + shortProblem(row.problem))},
    ]}));
}

section("made").textContent = plain(data.path) + ", attnforge " + plain(data.attnforge) + ", " + data.made.slice(0, 10);
navigation();
for (const part of [glance, winners, gains, model, gpus, stale]) part();
document.querySelector("footer").append("The numbers are those of attnforge report --json; they stand in this file as one block of JSON.");
