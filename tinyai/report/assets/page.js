// @ts-check
"use strict";

/** The host's operators, those together that are there for the same reason.
 *  @param {HTMLElement} place @param {Host[]} rows */
function showHost(place, rows) {
  /** @type {Map<string, {row: Host, number: number}[]>} */
  const groups = new Map();
  rows.forEach((row, number) => {
    const key = JSON.stringify([
      row.operator,
      row.reason.clause,
      row.reason.found,
      row.reason.allowed,
      row.hint,
    ]);
    groups.set(key, [...(groups.get(key) || []), { row, number }]);
  });
  place.append(
    h(
      "div",
      { class: "bar" },
      h("h2", {}, "On the host"),
      h("span", { class: "hint" }, `${rows.length} operators`),
    ),
  );
  for (const group of groups.values()) {
    const { row } = group[0];
    const { reason } = row;
    const macs = group.reduce((sum, each) => sum + (each.row.macs || 0), 0);
    const crossing = group.reduce((sum, each) => sum + (each.row.boundary_bytes || 0), 0);
    const nearest =
      reason.row_kind === "none"
        ? "none"
        : `${reason.row_kind} ${reason.row}${reason.calls > 1 ? `, fits ${reason.calls} operators` : ""}`;
    place.append(
      h(
        "article",
        { class: "host", id: `host-${group[0].number}` },
        h(
          "h3",
          {},
          h("span", { class: "chip outer" }, shown(row.operator, 60)),
          group.length > 1 ? ` × ${group.length}` : "",
        ),
        ...group.map((each) =>
          h(
            "p",
            { class: "source", id: each === group[0] ? null : `host-${each.number}` },
            `${shown(each.row.name || "without a name", 300)} → ${shown(each.row.type, 200)}`,
          ),
        ),
        list([
          ["clause", shown(reason.clause + (reason.at ? ` (at ${reason.at})` : ""), 600)],
          ["found", shown(reason.found, 600)],
          ["allowed", shown(reason.allowed, 600)],
          ["try", shown(row.hint, 1000)],
          ["nearest row", shown(nearest)],
          [
            "cost",
            `${macs ? `${count(macs)} multiply-accumulates, ` : ""}${count(crossing)} bytes across the boundary`,
          ],
        ]),
      ),
    );
  }
}

/** @param {HTMLElement} place @param {Region[]} regions @param {Head} head */
function showFacts(place, regions, head) {
  place.append(h("div", { class: "bar" }, h("h2", {}, "Sizes")));
  for (const region of regions) {
    const { dropped } = region;
    const left = dropped.constant + dropped.equal + dropped.unread;
    /** @type {[string, string][]} */
    const rows = [
      ["layers", count(region.anatomy ? region.anatomy.layers.length : 0)],
      ["work", `${count(region.macs)} multiply-accumulates`],
      [
        "weights",
        `${count(region.weight_bytes)} bytes${above(region.weight_bytes, region.weight_limit)}`,
      ],
      [
        "arena",
        `${count(region.arena_bytes)} bytes, lower bound ${count(region.arena_lower_bound)}${above(region.arena_bytes, region.arena_limit)}`,
      ],
    ];
    if (region.state_bytes) rows.push(["state", `${count(region.state_bytes)} bytes`]);
    if (left)
      rows.push([
        "left out",
        `${count(left)} channels (${count(dropped.constant)} constant, ${count(dropped.equal)} equal to another, ${count(dropped.unread)} unread), ${count(dropped.macs)} multiply-accumulates, ${count(dropped.weight_bytes)} bytes of weights`,
      ]);
    place.append(regions.length > 1 ? h("h3", {}, shown(region.symbol, 80)) : "", list(rows));
  }
  place.append(
    list([
      ...head.facts.map(
        ([name, value]) => /** @type {[string, string]} */ ([shown(name, 40), shown(value, 1000)]),
      ),
      ["made by", shown(head.generator)],
    ]),
  );
}

/** @param {number} size @param {number} limit */
function above(size, limit) {
  return limit && size > limit ? `, ABOVE the limit of ${count(limit)}` : "";
}

/** @param {Head} head */
function showHead(head) {
  at("title").append(shown(head.title, 90));
  at("made-by").append(shown(head.made_by));
  for (const highlight of head.highlights) {
    const words = [
      h("h2", {}, highlight.about),
      h("strong", {}, highlight.figure),
      h("p", {}, highlight.text),
    ];
    at("highlights").append(
      highlight.link
        ? h("a", { class: "highlight", href: `#${highlight.link}` }, ...words)
        : h("div", { class: "highlight" }, ...words),
    );
  }
}

/** Light, dark, or as the system: kept for the next page, where the browser lets it. */
function nextTheme() {
  const order = ["", "light", "dark"];
  const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % 3];
  setTheme(next);
  try {
    localStorage.setItem("tinyai-theme", next);
  } catch {
    // A page of a file may have no storage.
  }
}

/** @param {string} theme */
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  at("theme").textContent = theme ? theme[0].toUpperCase() + theme.slice(1) : "Theme";
}

async function main() {
  const head = /** @type {Head} */ (JSON.parse(at("head").textContent || ""));
  try {
    setTheme(localStorage.getItem("tinyai-theme") || "");
  } catch {
    // As the system.
  }
  showHead(head);
  /** @type {{regions: Region[], host: Host[], comparison: Comparison | null,
   *    quantization: Quantization | null}} */
  const { regions, host, comparison, quantization } = await unpacked("data");
  const layers = layersOf(regions);
  const byId = new Map(layers.map((layer) => [layer.id, layer]));
  const section = (/** @type {string} */ id, /** @type {string} */ label) => {
    const place = h("section", { id, "aria-label": label });
    at("sections").append(place);
    return place;
  };
  /** @type {string | null} */
  let chosen = null;
  const choose = (/** @type {string} */ id) => {
    chosen = id; // now: the next key may come before the event of this change
    location.hash = `layer=${id}`;
  };
  const details = new Details(at("details"), regions, head);
  const graph = new Graph(at("graph"), regions, host, layers);
  /** @type {View[]} */
  const views = [graph];
  if (comparison) showComparison(section("check", "Check"), comparison, layers);
  if (quantization) showQuantization(section("quantized", "Quantized values"), quantization);
  if (host.some((row) => row.computes)) showHost(section("host", "On the host"), host);
  if (regions.some((region) => region.arena_bytes))
    views.push(new Arena(section("arena", "Arena"), regions, layers, choose));
  if (layers.length) views.push(new Layers(section("layers", "Layers"), layers, choose));
  const flows = host.some((row) => row.flow.reads.length || row.flow.makes.length);
  if (!layers.length && !flows) document.body.classList.add("no-layers");
  if (host.length && !host.some((row) => row.computes))
    showHost(section("host", "On the host"), host);
  showFacts(section("facts", "Sizes"), regions, head);

  /** @type {Set<string> | null} */
  let matches = null;
  const mark = () => views.forEach((view) => view.mark(chosen, matches));

  const follow = () => {
    const [kind, value] = decodeURIComponent(location.hash.slice(1)).split("=");
    const layer =
      kind === "layer"
        ? byId.get(value) ||
          byId.get(`0.${value}`) ||
          layers.find((each) => each.facts.sources.includes(value))
        : undefined;
    chosen = layer ? layer.id : null;
    if (layer) for (const view of views) if (view instanceof Arena) view.show(layer.region);
    details.show(layer || null);
    mark();
    if (kind === "host")
      document.getElementById(`host-${value}`)?.scrollIntoView({ block: "center" });
  };
  const step = (/** @type {number} */ by, /** @type {Layer[]} */ among) => {
    if (!among.length) return;
    const now = among.findIndex((layer) => layer.id === chosen);
    choose(
      among[now < 0 ? (by > 0 ? 0 : among.length - 1) : (now + by + among.length) % among.length]
        .id,
    );
  };
  const found = () => layers.filter((layer) => matches === null || matches.has(layer.id));
  const search = /** @type {HTMLInputElement} */ (at("search"));
  const seek = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    matches = words.length
      ? new Set(
          layers
            .filter((layer) => words.every((word) => layer.text.includes(word)))
            .map((layer) => layer.id),
        )
      : null;
    at("matches").textContent = matches ? `${matches.size} of ${layers.length}` : "";
    mark();
  };
  const end = () => {
    search.value = "";
    seek();
    search.blur();
    if (chosen) location.hash = "";
  };
  search.addEventListener("input", seek);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1, found());
    if (event.key === "Escape") end();
  });
  const keys = /** @type {HTMLDialogElement} */ (at("keys"));
  at("theme").addEventListener("click", nextTheme);
  at("help").addEventListener("click", () => keys.showModal());
  /** @type {Record<string, () => void>} */
  const bound = {
    "/": () => search.focus(),
    j: () => step(1, found()),
    k: () => step(-1, found()),
    t: nextTheme,
    "?": () => keys.showModal(),
    "+": () => graph.zoomBy(1.25),
    "-": () => graph.zoomBy(1 / 1.25),
    0: () => graph.zoomBy(0),
    Escape: end,
  };
  addEventListener("keydown", (event) => {
    const typing =
      event.target instanceof HTMLElement && event.target.matches("input, select, dialog *");
    const act = bound[event.key];
    if (!act || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  addEventListener("hashchange", follow);
  requestAnimationFrame(() =>
    setTimeout(() => {
      if (!document.body.classList.contains("no-layers")) graph.draw();
      follow();
      document.documentElement.dataset.ready = String(Math.round(performance.now()));
    }),
  );
}

main();
