// @ts-check
"use strict";

const MARGIN = { left: 58, right: 10, top: 14, bottom: 32 };

/** The arena of a region over time: tensors as boxes at their offsets. */
class Arena {
  /** @param {HTMLElement} place @param {Region[]} regions @param {Layer[]} layers
   *  @param {(id: string) => void} choose */
  constructor(place, regions, layers, choose) {
    this.regions = regions;
    this.layers = new Map(layers.map((layer) => [layer.id, layer]));
    this.choose = choose;
    this.region = regions.findIndex((region) => region.anatomy !== null && region.arena_bytes > 0);
    /** @type {Map<string, SVGElement[]>} */
    this.boxes = new Map();
    this.width = 0;
    if (this.region < 0) return;
    const pick = h(
      "select",
      {
        "aria-label": "Region",
        change: () => this.show(Number(/** @type {HTMLSelectElement} */ (pick).value)),
      },
      ...regions.map((region, number) => h("option", { value: number }, shown(region.symbol, 40))),
    );
    this.pick = /** @type {HTMLSelectElement} */ (pick);
    this.caption = h("p", { class: "caption" });
    this.readout = h("p", { class: "readout", "aria-live": "polite" });
    this.plot = h("div", { class: "plot" });
    place.append(
      h("div", { class: "bar" }, h("h2", {}, "Arena over time"), regions.length > 1 ? pick : null),
      this.caption,
      this.plot,
      h(
        "p",
        { class: "legend" },
        h("span", { class: "key own" }, "result of a layer"),
        h("span", { class: "key scratch" }, "working memory"),
        h("span", { class: "key shared" }, "in place, alias, or part of another"),
        h("span", { class: "key bound" }, "lower bound"),
      ),
      this.readout,
    );
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  /** @param {number} region */
  show(region) {
    if (region === this.region || !this.pick) return;
    this.region = region;
    this.pick.value = String(region);
    this.width = 0;
    this.draw();
  }

  draw() {
    const width = Math.max(300, Math.round(this.plot ? this.plot.clientWidth : 0));
    const region = this.regions[this.region];
    if (!this.plot || !this.caption || !region || !region.anatomy || width === this.width) return;
    this.width = width;
    const { tensors, layers } = region.anatomy;
    const height = Math.min(380, Math.max(220, width * 0.45));
    const top = Math.max(region.arena_bytes, region.arena_lower_bound, 1);
    const x = (/** @type {number} */ time) =>
      MARGIN.left + (time / layers.length) * (width - MARGIN.left - MARGIN.right);
    const y = (/** @type {number} */ offset) =>
      height - MARGIN.bottom - (offset / top) * (height - MARGIN.top - MARGIN.bottom);
    const spare = region.arena_bytes - region.arena_lower_bound;
    this.caption.replaceChildren(
      `${count(region.arena_bytes)} bytes; ${spare ? `the lower bound is ${count(region.arena_lower_bound)}` : "the lower bound is reached"}. ` +
        "Each box is a tensor: from left to right the layers that need it, from bottom to top its bytes.",
    );
    this.boxes.clear();
    const boxes = s("g", {});
    for (const tensor of tensors) {
      if (tensor.space !== "arena") continue;
      const box = this.box(tensor, layers.length, x, y);
      boxes.append(box);
      const maker = makerOf(tensor);
      this.boxes.set(maker, [...(this.boxes.get(maker) || []), box]);
    }
    this.band = s("rect", {
      class: "band",
      y: MARGIN.top,
      height: height - MARGIN.top - MARGIN.bottom,
      width: Math.max(2, x(1) - x(0)),
    });
    this.x = x;
    const bound = y(region.arena_lower_bound);
    this.plot.replaceChildren(
      s(
        "svg",
        {
          viewBox: `0 0 ${width} ${height}`,
          width,
          height,
          role: "group",
          "aria-label": "Arena over time",
        },
        s(
          "defs",
          {},
          s(
            "pattern",
            {
              id: "hatch",
              width: 6,
              height: 6,
              patternUnits: "userSpaceOnUse",
              patternTransform: "rotate(45)",
            },
            s("line", { x1: 0, y1: 0, x2: 0, y2: 6 }),
          ),
        ),
        this.band,
        ...axes(width, height, top, layers.length, x, y),
        boxes,
        s("line", {
          class: "bound",
          x1: MARGIN.left,
          x2: width - MARGIN.right,
          y1: bound,
          y2: bound,
        }),
      ),
    );
    this.mark(this.chosen || null, this.matches || null);
  }

  /** @param {Tensor} tensor @param {number} end @param {(time: number) => number} x
   *  @param {(offset: number) => number} y */
  box(tensor, end, x, y) {
    const left = x(Math.max(tensor.first, 0));
    const width = Math.max(1.5, x(Math.min(tensor.last, end - 1) + 1) - left);
    const up = y(tensor.offset + tensor.bytes);
    const height = Math.max(1.5, y(tensor.offset) - up);
    const id = `${this.region}.${makerOf(tensor)}`;
    const layer = this.layers.get(id);
    const says = `${tensor.name}${layer ? `, ${layer.facts.operator} ${layer.name}` : ""}`;
    const kind = tensor.type === "scratch" ? "scratch" : tensor.shares ? "shared" : "own";
    const told =
      `${says} · ${tensor.type} · ${count(tensor.bytes)} bytes at ${count(tensor.offset)} · layers ${Math.max(tensor.first, 0)} to ${Math.min(tensor.last, end - 1)}` +
      (tensor.shares
        ? ` · ${tensor.how === "part" ? "part of" : `${tensor.how} of`} ${tensor.shares}`
        : "");
    const text =
      width > 64 && height > 15
        ? s(
            "svg", // which clips what is wider than the browser's letters usually are
            { x: left, y: up, width, height },
            s(
              "text",
              { x: 5, y: 13 },
              shown(layer ? layer.label : tensor.name, Math.floor((width - 8) / 6.6)),
            ),
          )
        : null;
    return s(
      "g",
      {
        class: `tensor ${kind}`,
        "data-tensor": tensor.name,
        click: () => layer && this.choose(id),
        pointerenter: () => this.readout && this.readout.replaceChildren(told),
      },
      s("title", {}, told),
      s("rect", { x: left, y: up, width, height, rx: Math.min(3, height / 4) }),
      text,
    );
  }

  /** @param {string | null} id @param {Set<string> | null} matches */
  mark(id, matches) {
    this.chosen = id;
    this.matches = matches;
    const [region, number] = (id || "-1.0").split(".").map(Number);
    if (this.band && this.x) {
      this.band.setAttribute("visibility", region === this.region ? "visible" : "hidden");
      this.band.setAttribute("x", String(this.x(number)));
    }
    for (const [maker, boxes] of this.boxes) {
      const each = `${this.region}.${maker}`;
      for (const box of boxes) {
        box.classList.toggle("chosen", each === id);
        box.classList.toggle("faint", matches !== null && !matches.has(each));
      }
    }
  }
}

/** The number of the layer whose result or working memory it is, or an input's name.
 *  @param {Tensor} tensor */
function makerOf(tensor) {
  const [, number] = /^(?:result|scratch of) (\d+)$/.exec(tensor.name) || [null, tensor.name];
  return number;
}

/** @param {number} width @param {number} height @param {number} top @param {number} layers
 *  @param {(time: number) => number} x @param {(offset: number) => number} y */
function axes(width, height, top, layers, x, y) {
  const marks = [];
  for (const value of ticks(top, 4)) {
    marks.push(
      s("line", {
        class: "grid",
        x1: MARGIN.left,
        x2: width - MARGIN.right,
        y1: y(value),
        y2: y(value),
      }),
      s(
        "text",
        { class: "tick", x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" },
        bytes(value),
      ),
    );
  }
  for (const value of ticks(layers, Math.max(2, Math.floor(width / 90)))) {
    if (Number.isInteger(value))
      marks.push(
        s(
          "text",
          {
            class: "tick",
            x: x(value),
            y: height - MARGIN.bottom + 15,
            "text-anchor": value === layers ? "end" : value ? "middle" : "start",
          },
          String(value),
        ),
      );
  }
  marks.push(
    s(
      "text",
      { class: "tick", x: width - MARGIN.right, y: height - 4, "text-anchor": "end" },
      "layers",
    ),
  );
  return marks;
}

/** Round numbers from 0 to some limit. @param {number} limit @param {number} wanted */
function ticks(limit, wanted) {
  const rough = limit / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) || rough;
  return Array.from({ length: Math.floor(limit / step) + 1 }, (_, i) => i * step);
}
