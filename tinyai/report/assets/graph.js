// @ts-check
"use strict";

const NODE = { width: 212, height: 46 };
const PORT = { width: 150, height: 24 };
const ZOOM = { least: 0.15, read: 0.75, most: 2 }; // read: the least for words of 12 pixels

/** The picture of the graph, which can be scrolled and zoomed. */
class Graph {
  /** @param {HTMLElement} place @param {Region[]} regions @param {Host[]} host
   *  @param {Layer[]} layers */
  constructor(place, regions, host, layers) {
    this.regions = regions;
    this.host = host;
    this.layers = layers;
    /** @type {Map<string, SVGElement>} */
    this.nodes = new Map();
    this.zoom = 1;
    this.size = { width: 1, height: 1 };
    this.first = 0; // where the uppermost node is, from the left
    const button = (
      /** @type {string} */ text,
      /** @type {string} */ says,
      /** @type {number} */ by,
    ) =>
      h(
        "button",
        { type: "button", "aria-label": says, title: says, click: () => this.zoomBy(by) },
        text,
      );
    this.scroller = h("div", {
      class: "scroller",
      tabindex: 0,
      role: "group",
      "aria-label": "Graph",
    });
    place.append(
      h(
        "div",
        { class: "bar" },
        h("h2", {}, "Graph"),
        this.legend(),
        button("−", "Zoom out (−)", 1 / 1.25),
        button("+", "Zoom in (+)", 1.25),
        button("Fit", "Fit (0)", 0),
      ),
      this.scroller,
    );
    this.scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.scroller.addEventListener("dragstart", (event) => event.preventDefault());
    this.scroller.addEventListener("pointerdown", (event) => this.drag(event));
  }

  legend() {
    const several = this.regions.length > 1;
    return h(
      "span",
      { class: "legend" },
      ...this.regions
        .slice(0, several ? 8 : 0)
        .map((region, number) =>
          h("span", { class: `key r${number % 6}` }, shown(region.symbol, 24)),
        ),
    );
  }

  /** Lay the graph out and draw it. */
  draw() {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({
      nodesep: 18,
      ranksep: 26,
      edgesep: 10,
      marginx: 14,
      marginy: 14,
      ranker: "tight-tree",
    });
    graph.setDefaultEdgeLabel(() => ({}));
    this.enter(graph);
    dagre.layout(graph);
    const { width, height } = graph.graph();
    this.size = { width: width || 1, height: height || 1 };
    /** @type {{x: number, y: number}[]} */
    const places = graph.nodes().map((/** @type {string} */ id) => graph.node(id));
    this.first = places.reduce((top, each) => (each.y < top.y ? each : top)).x;
    const edges = s("g", { class: "edges" });
    for (const edge of graph.edges())
      edges.append(s("path", { d: curve(graph.edge(edge).points) }));
    const nodes = s("g", {});
    const most = Math.max(1, ...this.layers.map((layer) => layer.facts.macs));
    const byId = new Map(this.layers.map((layer) => [layer.id, layer]));
    for (const id of graph.nodes()) {
      const place = graph.node(id);
      const layer = byId.get(id);
      const node = layer
        ? this.layerNode(layer, most)
        : id.startsWith("host")
          ? hostNode(place.row, place.number)
          : portNode(place.label);
      node.setAttribute(
        "transform",
        `translate(${place.x - place.width / 2},${place.y - place.height / 2})`,
      );
      if (layer) this.nodes.set(id, node);
      nodes.append(node);
    }
    const arrow = s(
      "marker",
      {
        id: "arrow",
        viewBox: "0 0 8 8",
        refX: 7,
        refY: 4,
        markerWidth: 6,
        markerHeight: 6,
        orient: "auto",
      },
      s("path", { d: "M0,0.5 L7,4 L0,7.5 z" }),
    );
    this.svg = s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Layers" },
      s("defs", {}, arrow),
      edges,
      nodes,
    );
    this.scroller.replaceChildren(this.svg);
    this.zoomBy(0);
  }

  /** Layers, the host's operators, and what goes in and comes out. @param {any} graph */
  enter(graph) {
    /** @type {Map<number, string>} */
    const makers = new Map();
    const read = new Set();
    this.host.forEach((row, number) => {
      if (!row.flow.reads.length && !row.flow.makes.length) return;
      graph.setNode(`host ${number}`, { ...NODE, row, number });
      for (const value of row.flow.makes) makers.set(value, `host ${number}`);
      for (const value of row.flow.reads) read.add(value);
    });
    this.regions.forEach((region, number) => {
      if (!region.anatomy) return;
      for (const { number: layer } of region.anatomy.layers)
        graph.setNode(`${number}.${layer}`, { ...NODE });
      region.anatomy.outputs.forEach((name, place) => {
        const value = region.flow.makes[place];
        if (value !== undefined) makers.set(value, `${number}.${name.replace("result ", "")}`);
      });
      for (const value of region.flow.reads) read.add(value);
    });
    this.regions.forEach((region, number) => this.join(graph, region, number, makers, read));
    this.host.forEach((row, number) => {
      for (const value of row.flow.reads)
        graph.setEdge(makers.get(value) || port(graph, value, "input"), `host ${number}`);
    });
  }

  /** The edges of a region. @param {any} graph @param {Region} region @param {number} number
   *  @param {Map<number, string>} makers @param {Set<number>} read values that someone reads */
  join(graph, region, number, makers, read) {
    if (!region.anatomy) return;
    const { layers, tensors, outputs } = region.anatomy;
    /** @type {Map<string, string>} */
    const known = new Map();
    tensors
      .filter((tensor) => tensor.first < 0)
      .forEach((tensor, place) => {
        const value = region.flow.reads[place];
        const made = value === undefined ? undefined : makers.get(value);
        known.set(
          tensor.name,
          made ||
            port(
              graph,
              value === undefined ? `${number}.${tensor.name}` : value,
              `${tensor.name}  ${tensor.type}`,
            ),
        );
      });
    for (const layer of layers) known.set(`result ${layer.number}`, `${number}.${layer.number}`);
    for (const layer of layers) {
      for (const name of layer.reads) graph.setEdge(known.get(name), `${number}.${layer.number}`);
    }
    outputs.forEach((name, place) => {
      const value = region.flow.makes[place];
      if (value !== undefined && read.has(value)) return;
      const tensor = tensors.find((each) => each.name === name);
      graph.setEdge(
        known.get(name),
        port(graph, `${number}.output ${place}`, `output ${place}  ${tensor ? tensor.type : ""}`),
      );
    });
  }

  /** @param {Layer} layer @param {number} most */
  layerNode(layer, most) {
    const { facts } = layer;
    const slower = facts.servings.length > 0 && facts.servings[0].slower.length > 0;
    const work = (NODE.width - 2) * (facts.macs / most);
    const right =
      facts.microseconds === null
        ? facts.macs
          ? scaled(facts.macs)
          : ""
        : `${scaled(facts.microseconds, [" µs", " ms", " s"])}`;
    return s(
      "a",
      { class: `node r${layer.region % 6}`, href: `#layer=${layer.id}`, tabindex: -1 },
      s("title", {}, `${layer.name}\n${facts.attributes}\n${facts.result}`),
      s("rect", { class: "card", width: NODE.width, height: NODE.height, rx: 7 }),
      s("rect", { class: "strip", width: 5, height: NODE.height - 2, x: 1, y: 1, rx: 2 }),
      s("rect", { class: "work", x: 1, y: NODE.height - 4, width: work, height: 3 }),
      s("text", { class: "operator", x: 14, y: 18 }, shown(facts.operator, 18)),
      s("text", { class: "number", x: NODE.width - 9, y: 18 }, slower ? `▲ ${right}` : right),
      s("text", { class: "label", x: 14, y: 35 }, shown(layer.label, 27)),
    );
  }

  /** @param {number} factor 0 to fit */
  zoomBy(factor) {
    if (!this.svg) return;
    const { clientWidth, clientHeight, scrollTop, scrollLeft } = this.scroller;
    const before = this.zoom;
    const fit = Math.min((clientWidth - 4) / this.size.width, 1);
    this.zoom = Math.min(
      ZOOM.most,
      Math.max(ZOOM.least, factor ? this.zoom * factor : Math.max(fit, ZOOM.read)),
    );
    this.svg.setAttribute("width", String(this.size.width * this.zoom));
    this.svg.setAttribute("height", String(this.size.height * this.zoom));
    if (!factor) {
      this.scroller.scrollLeft = this.first * this.zoom - clientWidth / 2;
      return;
    }
    const by = this.zoom / before;
    this.scroller.scrollTop = (scrollTop + clientHeight / 2) * by - clientHeight / 2;
    this.scroller.scrollLeft = (scrollLeft + clientWidth / 2) * by - clientWidth / 2;
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoomBy(Math.exp(-event.deltaY / 300));
  }

  /** A mouse moves the picture; a finger scrolls it anyway. @param {PointerEvent} event */
  drag(event) {
    if (event.pointerType !== "mouse" || event.button) return;
    const { scroller } = this;
    const from = { x: event.clientX + scroller.scrollLeft, y: event.clientY + scroller.scrollTop };
    const move = (/** @type {PointerEvent} */ each) => {
      scroller.scrollLeft = from.x - each.clientX;
      scroller.scrollTop = from.y - each.clientY;
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", () => removeEventListener("pointermove", move), { once: true });
  }

  /** @param {string | null} id @param {Set<string> | null} matches what a search found */
  mark(id, matches) {
    for (const [each, node] of this.nodes) {
      node.classList.toggle("chosen", each === id);
      node.classList.toggle("faint", matches !== null && !matches.has(each));
    }
    const node = id && this.nodes.get(id);
    if (!node) return;
    const box = node.getBoundingClientRect();
    const around = this.scroller.getBoundingClientRect();
    if (
      box.top < around.top ||
      box.bottom > around.bottom ||
      box.left < around.left ||
      box.right > around.right
    ) {
      this.scroller.scrollTop += box.top - around.top - (around.height - box.height) / 2;
      this.scroller.scrollLeft += box.left - around.left - (around.width - box.width) / 2;
    }
  }
}

/** The node of an input or output, which may be there. @param {any} graph
 *  @param {number | string} value @param {string} label */
function port(graph, value, label) {
  const id = `value ${value}`;
  if (!graph.hasNode(id)) graph.setNode(id, { ...PORT, label });
  return id;
}

/** An operator of the host. @param {Host} row @param {number} number */
function hostNode(row, number) {
  return s(
    "a",
    { class: `node outside${row.computes ? "" : " moves"}`, href: `#host=${number}`, tabindex: -1 },
    s(
      "title",
      {},
      `${shown(row.name)}\n${shown(row.type)}\n${shown(row.reason.clause)}: ${shown(row.reason.found)}`,
    ),
    s("rect", { class: "card", width: NODE.width, height: NODE.height, rx: 7 }),
    s("text", { class: "operator", x: 14, y: 18 }, shown(row.operator, 20)),
    s("text", { class: "number", x: NODE.width - 9, y: 18 }, "host"),
    s("text", { class: "label", x: 14, y: 35 }, shown(row.name || row.type, 27)),
  );
}

/** An input or output. @param {string} label */
function portNode(label) {
  return s(
    "g",
    { class: "port" },
    s("title", {}, label),
    s("rect", { width: PORT.width, height: PORT.height, rx: 12 }),
    s("text", { x: PORT.width / 2, y: 16 }, shown(label, 24)),
  );
}

/** A smooth line through the points of an edge. @param {{x: number, y: number}[]} points */
function curve(points) {
  const [first, ...rest] = points;
  const last = points[points.length - 1];
  let path = `M${first.x.toFixed(1)},${first.y.toFixed(1)}`;
  for (let i = 0; i < rest.length - 1; i++) {
    const [here, next] = [rest[i], rest[i + 1]];
    path += `Q${here.x.toFixed(1)},${here.y.toFixed(1)} ${((here.x + next.x) / 2).toFixed(1)},${((here.y + next.y) / 2).toFixed(1)}`;
  }
  return `${path}L${last.x.toFixed(1)},${last.y.toFixed(1)}`;
}
