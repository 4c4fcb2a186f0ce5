// @ts-check
"use strict";

/** @typedef {{name: string, value: (layer: Layer) => number | string, shown: (layer: Layer) => string,
 *    bar: boolean, says?: string, wide?: boolean}} Column */

/** The layers as a table whose columns sort, numbers as bars. */
class Layers {
  /** @param {HTMLElement} place @param {Layer[]} layers @param {(id: string) => void} choose */
  constructor(place, layers, choose) {
    this.layers = layers;
    this.columns = columnsOf(layers);
    this.sorted = { column: -1, down: true };
    /** @type {Map<string, HTMLElement>} */
    this.rows = new Map(layers.map((layer) => [layer.id, this.row(layer, choose)]));
    this.heads = this.columns.map((column, number) =>
      h(
        "th",
        { scope: "col", class: column.wide ? "wide" : column.bar ? "bars" : "" },
        h(
          "button",
          {
            type: "button",
            title: column.says || `Sort by ${column.name}`,
            click: () => this.sort(number),
          },
          column.name,
        ),
      ),
    );
    this.body = h("tbody", {}, ...this.rows.values());
    place.append(
      h(
        "div",
        { class: "bar" },
        h("h2", {}, "Layers"),
        h("span", { class: "hint" }, "a click on a heading sorts"),
      ),
      h(
        "div",
        { class: "table", tabindex: 0, role: "group", "aria-label": "Layers" },
        h("table", {}, h("thead", {}, h("tr", {}, ...this.heads)), this.body),
      ),
    );
  }

  /** @param {Layer} layer @param {(id: string) => void} choose */
  row(layer, choose) {
    const most =
      this.most ||
      (this.most = this.columns.map((column) =>
        column.bar ? Math.max(0, ...this.layers.map((each) => Number(column.value(each)))) : 0,
      ));
    const cells = this.columns.map((column, number) => {
      const text = column.shown(layer);
      if (column.name === "layer") {
        const link = h("a", { href: `#layer=${layer.id}` }, text);
        return h("td", {}, link, h("small", {}, layer.facts.operator));
      }
      if (!column.bar) return h("td", { class: column.wide ? "wide" : "" }, text);
      const bar = h("i", {});
      bar.style.width = `${most[number] ? (100 * Number(column.value(layer))) / most[number] : 0}%`;
      return h("td", { class: "bars" }, h("b", {}, bar), h("span", {}, text));
    });
    const clicked = (/** @type {MouseEvent} */ event) => {
      if (!(event.target instanceof HTMLAnchorElement)) choose(layer.id);
    };
    return h("tr", { click: clicked, class: `r${layer.region % 6}` }, ...cells);
  }

  /** @param {number} number */
  sort(number) {
    const column = this.columns[number];
    const down = this.sorted.column === number ? !this.sorted.down : column.bar;
    this.sorted = { column: number, down };
    const keyed = this.layers.map((layer, place) => ({ layer, place, key: column.value(layer) }));
    keyed.sort(
      (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) * (down ? -1 : 1) || a.place - b.place,
    );
    this.body.replaceChildren(
      ...keyed.map((each) => /** @type {HTMLElement} */ (this.rows.get(each.layer.id))),
    );
    this.heads.forEach((head, place) => {
      if (place === number) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  /** @param {string | null} id @param {Set<string> | null} matches */
  mark(id, matches) {
    for (const [each, row] of this.rows) {
      row.classList.toggle("chosen", each === id);
      row.hidden = matches !== null && !matches.has(each);
    }
  }
}

/** @param {Layer[]} layers @returns {Column[]} */
function columnsOf(layers) {
  const all = (/** @type {(layer: Layer) => number} */ value) =>
    layers.reduce((sum, layer) => sum + value(layer), 0);
  const kernel = (/** @type {Layer} */ layer) =>
    layer.facts.servings[0] ? layer.facts.servings[0].kernel : "";
  const time = (/** @type {Layer} */ layer) => layer.facts.microseconds || 0;
  const work = all((layer) => layer.facts.macs);
  const regions = new Set(layers.map((layer) => layer.region)).size > 1;
  /** @type {Column[]} */
  const columns = [
    {
      name: "#",
      value: (layer) => layer.region * 1e6 + layer.facts.number,
      shown: (layer) => (regions ? layer.id : `${layer.facts.number}`),
      bar: false,
      says: "In the order of execution",
    },
    { name: "layer", value: (layer) => layer.label, shown: (layer) => layer.label, bar: false },
    {
      name: "kernel",
      value: kernel,
      shown: (layer) =>
        `${kernel(layer) || "no code"}${layer.facts.servings.some((each) => each.slower.length) ? " ▲" : ""}`,
      bar: false,
      wide: true,
      says: "Sort by the row of the kernel table; ▲: slower than such layers can be",
    },
  ];
  const whole = all(time);
  if (whole) {
    columns.push({
      name: "time",
      value: time,
      shown: (layer) => `${time(layer).toFixed(1)} µs · ${share(time(layer), whole)}`,
      bar: true,
    });
  }
  columns.push(
    {
      name: "MACs",
      value: (layer) => layer.facts.macs,
      shown: (layer) =>
        layer.facts.macs ? `${scaled(layer.facts.macs)} · ${share(layer.facts.macs, work)}` : "",
      bar: true,
      says: "Sort by multiply-accumulates",
    },
    {
      name: "weights",
      value: (layer) => layer.facts.weight_bytes,
      shown: (layer) => (layer.facts.weight_bytes ? bytes(layer.facts.weight_bytes) : ""),
      bar: true,
      says: "Sort by the bytes of arrays that no layer before reads",
    },
    {
      name: "result",
      value: (layer) => layer.tensor.bytes,
      shown: (layer) => bytes(layer.tensor.bytes),
      bar: true,
      says: "Sort by the bytes of the result",
    },
  );
  return columns;
}
