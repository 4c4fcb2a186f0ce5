// @ts-check
"use strict";

// Everything that comes from the model is set as text, by h() and s() alone: never as HTML.

/** @typedef {{isa: string, kernel: string, slower: string[], math: boolean, call: number,
 *    function: number, code_bytes: number | null}} Serving */
/** @typedef {{number: number, operator: string, attributes: string, steps: string,
 *    sources: string[], reads: string[], result: string, macs: number, weight_bytes: number,
 *    servings: Serving[], schedule: string, stored: string, microseconds: number | null}} Facts */
/** @typedef {{name: string, type: string, space: string, offset: number, bytes: number,
 *    first: number, last: number, scale: number[], zero_point: number | null, axis: number | null,
 *    storage: string, shares: string, how: string}} Tensor */
/** @typedef {{layers: Facts[], tensors: Tensor[], outputs: string[]}} Anatomy */
/** @typedef {{constant: number, equal: number, unread: number, macs: number,
 *    weight_bytes: number}} Dropped */
/** @typedef {{symbol: string, macs: number, weight_bytes: number, arena_bytes: number,
 *    arena_lower_bound: number, arena_limit: number, weight_limit: number, state_bytes: number,
 *    dropped: Dropped, live: number[], anatomy: Anatomy | null, flow: Flow}} Region */
/** @typedef {{reads: number[], makes: number[]}} Flow values by their numbers */
/** @typedef {{row_kind: string, row: string, calls: number, clause: string, found: string,
 *    allowed: string, at: string}} Reason */
/** @typedef {{name: string, operator: string, type: string, reason: Reason, computes: boolean,
 *    macs: number | null, boundary_bytes: number | null, hint: string, flow: Flow}} Host */
/** @typedef {{about: string, figure: string, text: string, link: string}} Known one of the things to know */
/** @typedef {{title: string, made_by: string, generator: string, highlights: Known[],
 *    facts: [string, string][], peak: number | null}} Head */
/** @typedef {{id: string, region: number, facts: Facts, tensor: Tensor, label: string,
 *    name: string, text: string}} Layer a layer of any region, and what a search looks at */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {{mark(id: string | null, matches: Set<string> | null): void}} View what shows which
 *    layer is chosen, and which ones a search found */
/** @typedef {Record<string, unknown>} Properties attributes, and listeners as functions */

/** @param {Element} element @param {Properties} properties @param {(Node | string | null)[]} inner */
function filled(element, properties, inner) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") {
      element.addEventListener(name, /** @type {EventListener} */ (value));
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of inner) if (child !== null) element.append(child);
  return element;
}

/** An element of HTML. @param {string} tag @param {Properties} properties
 *  @param {(Node | string | null)[]} inner @returns {HTMLElement} */
function h(tag, properties = {}, ...inner) {
  return /** @type {HTMLElement} */ (filled(document.createElement(tag), properties, inner));
}

/** An element of SVG. @param {string} tag @param {Properties} properties
 *  @param {(Node | string | null)[]} inner @returns {SVGElement} */
function s(tag, properties = {}, ...inner) {
  return /** @type {SVGElement} */ (filled(document.createElementNS(SVG, tag), properties, inner));
}

/** @param {string} id @returns {HTMLElement} */
function at(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** Text on one line: what cannot be seen, or turns the direction of others, as an escape; a long
 *  one without its middle. @param {string} text @param {number} most */
function shown(text, most = 400) {
  const escaped = text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) => {
    const point = /** @type {number} */ (character.codePointAt(0));
    return point === 10 ? "\\n" : `\\u{${point.toString(16)}}`;
  });
  if (escaped.length <= most) return escaped;
  const tail = Math.floor(most / 2.5);
  return `${escaped.slice(0, most - tail - 1)}…${escaped.slice(-tail)}`;
}

/** @param {number} value */
function count(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/** Three digits with a unit. @param {number} value @param {string[]} units */
function scaled(value, units = ["", " k", " M", " G"]) {
  let place = 0;
  while (value >= 999.5 && place < units.length - 1) [value, place] = [value / 1000, place + 1];
  return `${Number(value.toPrecision(3))}${units[place]}`;
}

/** @param {number} value */
function bytes(value) {
  return scaled(value, [" B", " kB", " MB", " GB"]);
}

/** @param {number} part @param {number} whole */
function share(part, whole) {
  const percent = whole ? (100 * part) / whole : 0;
  return `${percent >= 9.95 ? Math.round(percent) : percent.toFixed(1)} %`;
}

/** A number of a scale. @param {number} value */
function figure(value) {
  return String(Number(value.toPrecision(6)));
}

/** The first name of each layer, without the folders at its front that most of them have.
 *  @param {string[][]} sources @returns {string[]} */
function briefNames(sources) {
  let names = sources.map(([name]) => (name || "").split(";")[0]);
  for (;;) {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const name of names) {
      const folder = name.slice(0, name.indexOf("/") + 1);
      if (folder.length < name.length) counts.set(folder, (counts.get(folder) || 0) + 1);
    }
    const common = [...counts].find(
      ([folder, many]) => folder && many > 1 && many >= 0.7 * names.length,
    );
    if (!common) return names;
    names = names.map((name) => (name.startsWith(common[0]) ? name.slice(common[0].length) : name));
  }
}

/** What the page was given in compressed form. @param {string} id @returns {Promise<any>} */
async function unpacked(id) {
  const packed = Uint8Array.from(atob(at(id).textContent || ""), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

/** @type {Promise<string[]> | null} */
let unpackedCode = null;

/** The texts of the C, unpacked when they are first asked for. */
function code() {
  unpackedCode = unpackedCode || unpacked("code");
  return unpackedCode;
}

/** All layers of all regions. @param {Region[]} regions @returns {Layer[]} */
function layersOf(regions) {
  const briefs = briefNames(
    regions.flatMap((region) =>
      (region.anatomy ? region.anatomy.layers : []).map((each) => each.sources),
    ),
  );
  return regions.flatMap((region, number) => {
    if (!region.anatomy) return [];
    const tensors = new Map(region.anatomy.tensors.map((tensor) => [tensor.name, tensor]));
    return region.anatomy.layers.map((facts) => {
      const name = facts.sources[0] || "";
      const label = briefs.shift() || "";
      const kernel = facts.servings[0] ? facts.servings[0].kernel : "";
      const tensor = /** @type {Tensor} */ (tensors.get(`result ${facts.number}`));
      const text = [...facts.sources, facts.attributes, kernel, `${facts.number}`].join("\n");
      return {
        id: `${number}.${facts.number}`,
        region: number,
        facts,
        tensor,
        label: label ? shown(label, 120) : facts.operator,
        name: name ? shown(name) : `layer ${facts.number}`,
        text: text.toLowerCase(),
      };
    });
  });
}
