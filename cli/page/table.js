// table.js - tables that sort by a click on a column's name, and show their first rows until asked.
// columns: {name, number, text, value(row), show(row)}; value sorts, show (or value) is displayed.
function sortableTable({columns, rows, shown = 20, chosen = () => false, sortBy = null, caption}) {
  let order = sortBy, all = rows.length <= shown, sorted = rows.slice();
  const body = el("tbody", {});
  const more = el("button", {class: "plain", type: "button", onclick: () => { all = !all; draw(); }});
  const heads = columns.map((column, i) => el("th",
    {scope: "col", class: column.number ? "number" : null},
    el("button", {type: "button", onclick: () => sort(i)}, column.name)));

  function sort(column) {
    const falling = order && order.column === column && !order.falling;
    order = {column, falling};
    draw();
  }
  function compare(a, b) {
    const missing = value => value === null || value === undefined || value === "" || Number.isNaN(value);
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const order_ = typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
    return order.falling ? -order_ : order_;
  }
  function draw() {
    sorted = rows.slice();
    if (order) sorted.sort((a, b) => compare(columns[order.column].value(a), columns[order.column].value(b)));
    heads.forEach((head, i) => head.setAttribute("aria-sort",
      order && order.column === i ? (order.falling ? "descending" : "ascending") : "none"));
    body.replaceChildren(...(all ? sorted : sorted.slice(0, shown)).map(row => el("tr",
      {class: chosen(row) ? "chosen" : null},
      columns.map(column => {
        const value = column.show ? column.show(row) : column.value(row);
        return el("td", {class: column.number ? "number" : column.text ? "text" : null},
          value === null || value === undefined ? "" : value);
      }))));
    more.textContent = all ? "Show the first " + shown : "Show all " + whole(rows.length);
  }
  draw();
  const table = el("table", {}, el("thead", {}, el("tr", {}, heads)), body);
  const holder = el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption}, table);
  const hint = el("p", {class: "note wider"}, "Wider than the page: scroll it sideways \u2192");
  const look = new ResizeObserver(() => { hint.hidden = table.offsetWidth <= holder.clientWidth; });
  look.observe(holder);
  look.observe(table);
  return el("div", {}, hint, holder, rows.length > shown ? el("p", {class: "controls"}, more) : null);
}
