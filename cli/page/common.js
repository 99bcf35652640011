// common.js - elements, numbers and configs. Text from the data only ever becomes text nodes.
const data = JSON.parse(document.getElementById("data").textContent);
const svgNames = document.getElementById("svg").namespaceURI;

// What steers a terminal or turns the direction of writing is shown as its code.
const steering = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
function plain(text) {
  return String(text).replace(steering, c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : plain(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : plain(child));
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(svgNames, tag), attributes, children);
const note = text => el("p", {class: "note"}, text);
const section = id => document.getElementById(id);

// ---- Numbers ----
// With so many digits that count, zeros at the end too.
function digits(value, count = 4) {
  if (!Number.isFinite(value)) return "-";
  if (value === 0) return "0";
  const after = Math.min(6, Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value)))));
  return value.toFixed(after);
}
const short = value => String(Number(digits(value, 3)));
const whole = value => Math.round(value).toLocaleString("en-US").replace(/,/g, "\u2009");
const counted = (count, one, many) => whole(count) + " " + (count === 1 ? one : many || one + "s");
const microseconds = value => value > 0 ? (value >= 10000 ? digits(value / 1000) + " ms" : digits(value) + " \u00b5s") : "-";
const percent = value => (100 * value).toFixed(1) + "%";
function bytes(value) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024]])
    if (value >= size) return short(value / size) + " " + unit;
  return value + " bytes";
}

// ---- Texts of problems and configs: words, of which some are name=value ----
// A map of the words that have a value.
const valuesOf = text => new Map(text.split(" ").filter(word => word.indexOf("=") > 0).map(word => word.split(/=(.*)/s, 2)));
function configOf(text) {
  const fields = new Map([...valuesOf(text)].map(([name, value]) => [name, Number(value)]));
  return {text, family: text.split(" ")[0], fields};
}
// In words, as the program's tables show it; the whole text is a tip, or opens by a click.
const words = new Map();
const wordsOf = text => words.get(text) || text;
const configElement = text => el("span", {class: "cell", title: text}, wordsOf(text));
const configDetails = text => el("details", {}, el("summary", {}, wordsOf(text)), el("code", {}, text));
// The fields that tell configs apart, in their order; the others are the same in all of them.
function varyingFields(configs) {
  const values = new Map();
  for (const config of configs)
    for (const [name, value] of config.fields) {
      if (!values.has(name)) values.set(name, new Set());
      values.get(name).add(value);
    }
  const families = new Set(configs.map(config => config.family)).size;
  return [...values.keys()].filter(name => values.get(name).size > 1 ||
    (families > 1 && configs.some(config => !config.fields.has(name))));
}

// The text of a problem in its shorthands, which mean the same: what is usual is left out.
function shortProblem(text) {
  const values = valuesOf(plain(text));
  const pairs = [["num_heads_q", "num_heads_kv", "num_heads"], ["seqlen_q", "seqlen_kv", "seqlen"], ["head_dim", "head_dim_v", "head_dim"]];
  return plain(text).split(" ").map(word => {
    const name = word.split("=", 1)[0];
    if (word === "batch=1" || pairs.some(([q, kv]) => kv === name && values.has(q))) return "";
    const [q, kv, both] = pairs.find(([q, kv]) => q === name && values.has(kv)) || [];
    if (!both) return word;
    return both + "=" + values.get(q) + (values.get(q) === values.get(kv) ? "" : ":" + values.get(kv));
  }).filter(Boolean).join(" ");
}

function facts(list, rows) {
  for (const [name, value, note] of rows) {
    if (value === null || value === undefined || value === "") continue;
    // dt and dd stay together in the grid.
    list.append(el("div", {}, el("dt", {}, name), el("dd", {}, value, note ? el("small", {}, note) : null)));
  }
}

function navigation() {
  const nav = document.querySelector("nav");
  for (const part of document.querySelectorAll("main > section"))
    nav.append(el("a", {href: "#" + part.id}, part.querySelector("h2").textContent));
}
