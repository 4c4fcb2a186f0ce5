// @ts-check
"use strict";

/** A column of a table: what it sorts by, and what it shows; a number may be a ``bar``, and a column
 *  may be there only where the screen is ``wide``.
 *  @template T
 *  @typedef {{name: string, value: (row: T) => number | string,
 *    shown: (row: T) => Node | string, bar: boolean, says?: string, wide?: boolean}} Column */

/** A table whose columns sort, numbers as bars. @template T */
class Table {
  /** @param {HTMLElement} place @param {string} title @param {T[]} rows
   *  @param {Column<T>[]} columns */
  constructor(place, title, rows, columns) {
    this.rows = rows;
    this.columns = columns;
    this.sorted = { column: -1, down: true };
    const most = columns.map((column) =>
      column.bar ? Math.max(0, ...rows.map((row) => Number(column.value(row)))) : 0,
    );
    this.lines = rows.map((row) => this.line(row, most));
    this.heads = columns.map((column, number) => this.head(column, number));
    this.body = h("tbody", {}, ...this.lines);
    place.append(
      h(
        "div",
        { class: "bar" },
        h("h2", {}, title),
        h("span", { class: "hint" }, "a click on a heading sorts"),
      ),
      h(
        "div",
        { class: "table", tabindex: 0, role: "group", "aria-label": title },
        h("table", {}, h("thead", {}, h("tr", {}, ...this.heads)), this.body),
      ),
    );
  }

  /** @param {Column<T>} column @param {number} number */
  head(column, number) {
    const title = column.says || `Sort by ${column.name}`;
    const button = h(
      "button",
      { type: "button", title, click: () => this.sort(number) },
      column.name,
    );
    return h(
      "th",
      { scope: "col", class: column.wide ? "wide" : column.bar ? "bars" : "" },
      button,
    );
  }

  /** @param {T} row @param {number[]} most */
  line(row, most) {
    const cells = this.columns.map((column, number) => {
      const shows = column.shown(row);
      if (!column.bar) return h("td", { class: column.wide ? "wide" : "" }, shows);
      const bar = h("i", {});
      bar.style.width = `${most[number] ? Math.max(0, (100 * Number(column.value(row))) / most[number]) : 0}%`;
      return h("td", { class: "bars" }, h("b", {}, bar), h("span", {}, shows));
    });
    return h("tr", {}, ...cells);
  }

  /** @param {number} number */
  sort(number) {
    const column = this.columns[number];
    const down = this.sorted.column === number ? !this.sorted.down : column.bar;
    this.sorted = { column: number, down };
    const keyed = this.rows.map((row, place) => ({ place, key: column.value(row) }));
    keyed.sort(
      (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) * (down ? -1 : 1) || a.place - b.place,
    );
    this.body.replaceChildren(...keyed.map((each) => this.lines[each.place]));
    this.heads.forEach((head, place) => {
      if (place === number) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }
}

/** The layers as a table; a click on a row chooses its layer. @extends {Table<Layer>} */
class Layers extends Table {
  /** @param {HTMLElement} place @param {Layer[]} layers @param {(id: string) => void} choose */
  constructor(place, layers, choose) {
    super(place, "Layers", layers, columnsOf(layers));
    layers.forEach((layer, number) =>
      this.lines[number].addEventListener("click", (event) => {
        if (!(event.target instanceof HTMLAnchorElement)) choose(layer.id);
      }),
    );
  }

  /** @param {string | null} id @param {Set<string> | null} matches */
  mark(id, matches) {
    this.rows.forEach((layer, number) => {
      this.lines[number].classList.toggle("chosen", layer.id === id);
      this.lines[number].hidden = matches !== null && !matches.has(layer.id);
    });
  }
}

/** A name, which may be a link, above what it is. @param {string} name @param {string} kind
 *  @param {string | null} link */
function named(name, kind, link) {
  const head = link ? h("a", { href: link }, name) : name;
  return h("div", {}, head, h("small", {}, kind));
}

/** A name that is broken behind underscores, where it has to be. @param {string} name */
function breaking(name) {
  return h("span", {}, ...name.split(/(?<=_)/).flatMap((part) => [part, h("wbr", {})]));
}

/** Bytes of a layer's machine code under all instruction sets. @param {Layer} layer */
function codeOf(layer) {
  return layer.facts.servings.reduce((sum, each) => sum + (each.code_bytes || 0), 0);
}

/** @param {Layer[]} layers @returns {Column<Layer>[]} */
function columnsOf(layers) {
  const all = (/** @type {(layer: Layer) => number} */ value) =>
    layers.reduce((sum, layer) => sum + value(layer), 0);
  const kernel = (/** @type {Layer} */ layer) =>
    layer.facts.servings[0] ? layer.facts.servings[0].kernel : "";
  const time = (/** @type {Layer} */ layer) => layer.facts.microseconds || 0;
  const work = all((layer) => layer.facts.macs);
  const code = all(codeOf);
  const regions = new Set(layers.map((layer) => layer.region)).size > 1;
  /** @type {Column<Layer>[]} */
  const columns = [
    {
      name: "#",
      value: (layer) => layer.region * 1e6 + layer.facts.number,
      shown: (layer) => (regions ? layer.id : `${layer.facts.number}`),
      bar: false,
      says: "In the order of execution",
    },
    {
      name: "layer",
      value: (layer) => layer.label,
      shown: (layer) => named(layer.label, layer.facts.operator, `#layer=${layer.id}`),
      bar: false,
    },
    {
      name: "kernel",
      value: kernel,
      shown: (layer) =>
        breaking(
          `${kernel(layer) || "no code"}${layer.facts.servings.some((each) => each.slower.length) ? " ▲" : ""}`,
        ),
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
    ...(code
      ? [
          {
            name: "code",
            value: codeOf,
            shown: (/** @type {Layer} */ layer) => (codeOf(layer) ? bytes(codeOf(layer)) : ""),
            bar: true,
            says: "Sort by the bytes of machine code that no layer before calls",
          },
        ]
      : []),
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
