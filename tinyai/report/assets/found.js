// @ts-check
"use strict";

// What a check found, and what became of the values of a model that was quantized.

/** @typedef {{name: string, type: string, elements: number, differing: number,
 *    sample: number | null, index: number[], found: number | string | null,
 *    expected: number | string | null}} Output */
/** @typedef {{name: string, number: number, layers: number, names: string[], operator: string,
 *    type: string, found_by: string, expected_by: string, index: number[], found: number | string,
 *    expected: number | string, differing: number, elements: number,
 *    arithmetic: {says: string, value: number | string, depth: number}[]}} Different */
/** @typedef {{equal: boolean, checked: string, opponent: string, rounding: string,
 *    samples: number, given: number, outputs: Output[], first: Different | null,
 *    notes: string[]}} Comparison */
/** @typedef {{name: string, operator: string, type: string, dtype: string, scale: number,
 *    zero_point: number, low: number, high: number, used: number, saturated: number,
 *    sqnr: number | string | null, alone: number | string | null}} Quantized */
/** @typedef {{observer: string, samples: number, compared: number, layers: Quantized[],
 *    outputs: {type: string, sqnr: number | string | null, agreement: number,
 *      largest_error: number}[],
 *    left: Left[], kept: Left[]}} Quantization */
/** @typedef {{name: string, operator: string, reason: string}} Left what stays as it is */

/** @param {HTMLElement} place @param {Comparison} comparison @param {Layer[]} layers */
function showComparison(place, comparison, layers) {
  const { first } = comparison;
  place.append(
    h(
      "div",
      { class: "bar" },
      h("h2", {}, comparison.equal ? "All values are equal" : "Values differ"),
    ),
    list([
      ["code", shown(comparison.checked, 300)],
      ["beside", shown(comparison.opponent)],
      ["rounding", shown(comparison.rounding)],
      ["samples", `${comparison.given} given, ${comparison.samples - comparison.given} random`],
      ...comparison.outputs.map(
        (each) => /** @type {[string, string]} */ (["output", outputText(each)]),
      ),
      ...comparison.notes.map(
        (note) => /** @type {[string, string]} */ (["note", shown(note, 600)]),
      ),
    ]),
  );
  if (!first) return;
  const layer = layers.find((each) =>
    first.names.some((name) => each.facts.sources.includes(name)),
  );
  const name = shown(first.name, 300);
  place.append(
    h("h3", {}, "The first layer that differs"),
    list([
      ["layer", layer ? h("a", { href: `#layer=${layer.id}` }, name) : name],
      ["operator", `${shown(first.operator)} → ${shown(first.type)}`],
      [
        "element",
        `[${first.index.join(", ")}], the first of ${count(first.differing)} of ${count(first.elements)} that differ`,
      ],
      ["found", `${first.found} by ${shown(first.found_by)}`],
      ["expected", `${first.expected} by ${shown(first.expected_by)}`],
    ]),
  );
  if (!first.arithmetic.length) return;
  const lines = first.arithmetic.map((line) => {
    const says = h("td", {}, shown(line.says, 300));
    says.style.paddingLeft = `${10 + 22 * line.depth}px`;
    return h("tr", {}, says, h("td", { class: "value" }, String(line.value)));
  });
  place.append(
    h("h3", {}, "How the element is computed, step by step"),
    h(
      "div",
      { class: "steps", tabindex: 0, role: "group", "aria-label": "Steps" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h("tr", {}, h("th", { scope: "col" }, "step"), h("th", { scope: "col" }, "value")),
        ),
        h("tbody", {}, ...lines),
      ),
    ),
  );
}

/** @param {Output} output */
function outputText(output) {
  const name = `${shown(output.name, 200)}: ${shown(output.type)}`;
  if (!output.differing) return `${name}: ${count(output.elements)} values, all equal`;
  return `${name}: ${count(output.differing)} of ${count(output.elements)} values differ, first in sample ${output.sample} at [${output.index.join(", ")}]: found ${output.found}, expected ${output.expected}`;
}

/** @param {HTMLElement} place @param {Quantization} quantization */
function showQuantization(place, quantization) {
  const { layers, outputs } = quantization;
  const ranked = layers.some((row) => row.alone !== null);
  /** @type {Column<Quantized>[]} */
  const columns = [
    {
      name: "layer",
      value: (row) => row.name,
      shown: (row) =>
        named(shown(row.name, 120), `${shown(row.operator, 40)} · ${shown(row.dtype)}`, null),
      bar: false,
    },
    {
      name: "SQNR",
      value: (row) => inDecibels(row.sqnr),
      shown: (row) => decibels(row.sqnr),
      bar: true,
      says: "Sort by signal to quantization noise, that of the layers before included",
    },
    ...(ranked
      ? [
          /** @type {Column<Quantized>} */ ({
            name: "alone",
            value: (row) => (row.alone === null ? 0 : inDecibels(row.alone)),
            shown: (row) => (row.alone === null ? "" : decibels(row.alone)),
            bar: true,
            says: "Sort by the SQNR of the results where this layer alone is quantized",
          }),
        ]
      : []),
    {
      name: "used",
      value: (row) => row.used,
      shown: (row) => share(row.used, 1),
      bar: true,
      says: "Sort by the share of the integers' range that values use",
    },
    {
      name: "saturated",
      value: (row) => row.saturated,
      shown: (row) => (row.saturated ? `${(100 * row.saturated).toFixed(2)} %` : ""),
      bar: true,
      says: "Sort by the share of values outside of the range",
    },
    {
      name: "range",
      value: (row) => row.high - row.low,
      shown: (row) => `${three(row.low)} … ${three(row.high)}`,
      bar: false,
      says: "Sort by how far apart the least and the largest value are",
      wide: true,
    },
    {
      name: "scale",
      value: (row) => row.scale,
      shown: (row) => `${three(row.scale)}, ${row.zero_point}`,
      bar: false,
      says: "Sort by scale; the zero point stands behind it",
      wide: true,
    },
  ];
  new Table(place, "Quantized values", layers, columns);
  const more = h("div", { class: "more" });
  place.prepend(more);
  more.append(
    h("div", { class: "bar" }, h("h2", {}, "Quantization")),
    list([
      [
        "samples",
        `${count(quantization.samples)} for the ranges, by ${shown(quantization.observer)}; ${count(quantization.compared)} of them by the integers, for this page`,
      ],
      ...outputs.map(
        (each, number) =>
          /** @type {[string, string]} */ ([
            `result ${number}`,
            `SQNR ${decibels(each.sqnr)}, the same largest value in ${share(each.agreement, 1)} of the samples, largest error ${three(each.largest_error)}`,
          ]),
      ),
      ...quantization.left.map(
        (each) => /** @type {[string, string]} */ (["in float", leftText(each)]),
      ),
      ...quantization.kept.map(
        (each) => /** @type {[string, string]} */ (["as it was", leftText(each)]),
      ),
    ]),
  );
}

/** @param {Left} left */
function leftText(left) {
  return shown(`${left.operator} ${left.name}: ${left.reason}`, 600);
}

/** Exact values sort above others, and their bars are no longer than they need to be. @param {number | string | null} value */
function inDecibels(value) {
  return typeof value === "number" ? value : 99;
}

/** @param {number | string | null} value */
function decibels(value) {
  return typeof value === "number" ? `${value.toFixed(1)} dB` : "exact";
}

/** @param {number} value */
function three(value) {
  return String(Number(value.toPrecision(4)));
}
