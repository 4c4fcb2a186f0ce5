// @ts-check
"use strict";

/** What is known of one layer. */
class Details {
  /** @param {HTMLElement} place @param {Region[]} regions @param {Head} head */
  constructor(place, regions, head) {
    this.place = place;
    this.regions = regions;
    this.head = head;
    this.show(null);
  }

  /** @param {Layer | null} layer */
  show(layer) {
    this.place.classList.toggle("open", layer !== null);
    if (!layer) {
      this.place.replaceChildren(
        h(
          "p",
          { class: "empty" },
          "Choose a layer in the graph, the arena or the table to see its shapes, scales, kernel and C.",
        ),
      );
      return;
    }
    const { facts, tensor } = layer;
    const close = h(
      "a",
      {
        class: "close",
        href: "#",
        title: "Let go of the layer (Esc)",
        "aria-label": "Let go of the layer",
      },
      "×",
    );
    this.place.replaceChildren(
      h(
        "div",
        { class: "bar" },
        h(
          "h2",
          {},
          h("span", { class: `chip r${layer.region % 6}` }, layer.facts.operator),
          ` layer ${facts.number}`,
        ),
        close,
      ),
      h(
        "div",
        { class: "body", tabindex: 0, role: "group", "aria-label": "Facts of the layer" },
        ...facts.sources.map((name) => h("p", { class: "source" }, shown(name, 1000))),
        ...this.slower(facts),
        list(this.facts(layer)),
        h("h3", {}, "Memory"),
        list(this.memory(layer.region, facts, tensor)),
        ...this.code(facts),
      ),
    );
  }

  /** @param {Facts} facts */
  slower(facts) {
    const reasons = new Set(
      facts.servings.flatMap((each) => each.slower.map((why) => `${each.isa}: ${why}`)),
    );
    if (!reasons.size) return [];
    return [
      h(
        "div",
        { class: "slower" },
        h("strong", {}, "▲ Slower than such layers can be"),
        h("ul", {}, ...[...reasons].map((why) => h("li", {}, shown(why, 600)))),
      ),
    ];
  }

  /** @param {Layer} layer @returns {[string, Node | string][]} */
  facts(layer) {
    const { facts, region } = layer;
    const tensors = this.tensors(region);
    const reads = facts.reads.map((name) => {
      const tensor = tensors.get(name);
      const number = /^result (\d+)$/.exec(name);
      const label = number
        ? h("a", { href: `#layer=${region}.${number[1]}` }, `layer ${number[1]}`)
        : name;
      return h(
        "div",
        {},
        label,
        ` ${tensor ? tensor.type : ""}${tensor && quantized(tensor) ? `, ${quantized(tensor)}` : ""}`,
      );
    });
    const whole = this.regions[region];
    /** @type {[string, Node | string][]} */
    const rows = [["operator", shown(facts.attributes, 1000)]];
    if (facts.steps) rows.push(["then", shown(facts.steps, 1000)]);
    rows.push(
      ["reads", h("div", {}, ...reads)],
      ["makes", `${facts.result}${quantized(layer.tensor) ? `, ${quantized(layer.tensor)}` : ""}`],
    );
    if (facts.stored) rows.push(["left out", `stores ${facts.stored}`]);
    rows.push([
      "work",
      facts.macs
        ? `${count(facts.macs)} multiply-accumulates, ${share(facts.macs, whole.macs)} of the region's`
        : "no multiply-accumulates",
    ]);
    if (facts.microseconds !== null) rows.push(["time", this.time(facts)]);
    for (const each of facts.servings)
      rows.push([
        each.isa,
        `${each.kernel || "no code is needed"}${each.math ? ", calls the C library's mathematics" : ""}${
          each.code_bytes ? `, ${count(each.code_bytes)} bytes of machine code` : ""
        }`,
      ]);
    if (facts.schedule) rows.push(["cut into", shown(facts.schedule)]);
    return rows;
  }

  /** @param {Facts} facts */
  time(facts) {
    const time = facts.microseconds || 0;
    const speed = time ? facts.macs / time / 1e3 : 0;
    const peak =
      this.head.peak && facts.macs
        ? `, ${share(speed, this.head.peak)} of the processor's peak`
        : "";
    return `${time.toFixed(2)} µs${facts.macs ? `, ${speed.toFixed(1)} GMAC/s${peak}` : ""}`;
  }

  /** @param {number} region @param {Facts} facts @param {Tensor} tensor @returns {[string, string][]} */
  memory(region, facts, tensor) {
    const places = {
      arena: `in the arena at ${count(tensor.offset)}`,
      input: "in an input",
      output: "in an output of the caller's",
      constant: "constant",
    };
    const shares = tensor.shares
      ? `; ${tensor.how === "part" ? "part of" : `${tensor.how} of`} ${tensor.shares}`
      : "";
    const scratch = this.tensors(region).get(`scratch of ${facts.number}`);
    /** @type {[string, string][]} */
    const rows = [
      [
        "result",
        `${count(tensor.bytes)} bytes, ${places[/** @type {"arena"} */ (tensor.space)]}${tensor.storage ? `, ${tensor.storage}` : ""}${shares}`,
      ],
    ];
    if (scratch)
      rows.push(["working", `${count(scratch.bytes)} bytes at ${count(scratch.offset)}`]);
    const live = this.regions[region].live[facts.number];
    if (live)
      rows.push([
        "arena",
        `${count(live)} bytes in use, ${share(live, this.regions[region].arena_bytes)}`,
      ]);
    rows.push([
      "weights",
      `${count(facts.weight_bytes)} bytes, ${share(facts.weight_bytes, this.regions[region].weight_bytes)} of the region's`,
    ]);
    return rows;
  }

  /** @param {Facts} facts */
  code(facts) {
    const servings = facts.servings.filter((each) => each.kernel);
    if (!servings.length) return [];
    const text = h("code", {}, "…");
    const pick = /** @type {HTMLSelectElement} */ (
      h(
        "select",
        { "aria-label": "Instruction set", change: () => fill() },
        ...servings.map((each, number) => h("option", { value: number }, each.isa)),
      )
    );
    const fill = async () => {
      const serving = servings[Number(pick.value)];
      const texts = await code();
      text.replaceChildren(...coloured(`${texts[serving.call]}\n\n${texts[serving.function]}`));
    };
    fill();
    return [
      h("h3", {}, "C", servings.length > 1 ? pick : null),
      h("pre", { tabindex: 0, "aria-label": "C of the layer", role: "group" }, text),
    ];
  }

  /** @param {number} region */
  tensors(region) {
    const { anatomy } = this.regions[region];
    return new Map((anatomy ? anatomy.tensors : []).map((tensor) => [tensor.name, tensor]));
  }
}

/** @param {Tensor} tensor */
function quantized(tensor) {
  if (!tensor.scale.length) return "";
  const [least, most] = [Math.min(...tensor.scale), Math.max(...tensor.scale)];
  const scale =
    tensor.axis === null
      ? `scale ${figure(tensor.scale[0])}`
      : `${tensor.scale.length} scales along axis ${tensor.axis}, ${figure(least)} to ${figure(most)}`;
  return `${scale}, zero point ${tensor.zero_point}`;
}

/** @param {[string, Node | string][]} rows */
function list(rows) {
  return h("dl", {}, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

const TOKEN =
  /(\/\*[\s\S]*?\*\/|\/\/[^\n]*)|\b(static|inline|const|void|for|if|else|return|while|int|char|unsigned|signed|long|short|float|double|sizeof|struct|u?int\d+_t|ptrdiff_t|size_t|__m\d+i?)\b|\b(0x[0-9a-fA-F]+|\d+(?:\.\d+)?)[a-zA-Z]*\b/g;

/** C with its comments, words and numbers coloured. @param {string} text */
function coloured(text) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(TOKEN)) {
    const start = match.index || 0;
    parts.push(
      text.slice(from, start),
      h("span", { class: match[1] ? "comment" : match[2] ? "word" : "digits" }, match[0]),
    );
    from = start + match[0].length;
  }
  return [...parts, text.slice(from)];
}
