/** A request's way through the stages, and in grey whatever else the stages did meanwhile. */

import { element, svg } from "./dom.js";
import { milliseconds } from "./format.js";

const STAGES = { vision: "Vision", encode: "Encode", prefill: "Prefill", decode: "Decode" };
const PULLS = { prefill: "Encode → prefill", decode: "Prefill → decode" }; // of pages, from another memory
const LEGEND = [["own", "this question"], ["queued", "waiting for a stage"], ["others", "other requests"]];
const WIDTH = 1000; // of the drawings, in units of their own
const HEIGHT = 20;
const LINE = 4; // height of a bar for waiting
const LEAST = 2; // width of a bar
const THREADS = 1000; // of an instance of a stage, in the trace

export class Gantt {
  constructor() {
    this.body = element("tbody");
    this.axis = element("div", { class: "axis" });
    this.root = element(
      "table",
      { class: "gantt" },
      element("caption", {}, ...LEGEND.map(([kind, text]) => element("span", { class: kind }, text))),
      element("colgroup", {}, element("col", { class: "names" }), element("col"), element("col", { class: "sums" })),
      this.body,
      element("tfoot", {}, element("tr", {}, element("td"), element("td", {}, this.axis), element("td"))),
    );
    this.rows = new Map();
  }

  /** Draws from `start` to `end` (microseconds): the spans of `request` in colour, all others behind them. */
  draw(spans, request, start, end) {
    const scale = WIDTH / Math.max(end - start, 1);
    const rows = new Map();
    for (const span of spans) {
      if (span.ts + span.dur < start || span.ts > end) continue;
      const own = span.args.requests.includes(request);
      const queued = span.name === "queue";
      if (queued && !own) continue;
      const row = rowOf(rows, span, queued);
      const x = Math.max(0, (span.ts - start) * scale);
      const width = Math.max(LEAST, (span.ts + span.dur - start) * scale - x);
      const kind = queued ? "queued" : own ? "own" : "others";
      row[kind].push(bar(x, width, queued ? LINE : HEIGHT));
      if (kind === "own") row.busy += span.dur;
    }
    for (const [key, row] of [...rows].sort()) this.#show(key, row);
    this.#drawAxis((end - start) / 1000);
  }

  #show(key, row) {
    let shown = this.rows.get(key);
    if (!shown) {
      shown = { paths: {}, busy: element("td", { class: "busy" }) };
      for (const kind of ["others", "queued", "own"]) shown.paths[kind] = svg("path", { class: kind });
      const drawing = svg(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
        ...Object.values(shown.paths),
      );
      const heading = element("th", { scope: "row" }, row.label);
      const cells = [heading, element("td", {}, drawing), shown.busy];
      shown.row = element("tr", { "data-stage": row.stage, "data-order": key }, ...cells);
      this.rows.set(key, shown);
      const all = [...this.body.children, shown.row];
      this.body.append(...all.sort((a, b) => a.dataset.order.localeCompare(b.dataset.order)));
    }
    for (const [kind, path] of Object.entries(shown.paths)) path.setAttribute("d", row[kind].join(""));
    shown.busy.textContent = row.busy ? milliseconds(row.busy / 1000) : "–";
  }

  #drawAxis(total) {
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => (share ? milliseconds(share * total) : "0"));
    this.axis.replaceChildren(...ticks.map((tick) => element("span", {}, tick)));
  }
}

/** A rectangle on the bottom of the drawing, for a path. */
function bar(x, width, height) {
  return `M${x.toFixed(1)} ${HEIGHT - height}h${width.toFixed(1)}v${height}h-${width.toFixed(1)}z`;
}

/** What is drawn for a span's stage, for one of the decoder engines of vision, or for pages that travel to the stage. */
function rowOf(rows, span, queued) {
  const tracks = span.cat === "vision" && !queued;
  const pulls = span.name === "pull";
  const track = tracks ? span.tid : pulls ? 0 : 1;
  const key = `${span.pid}-${String(track).padStart(5, "0")}`;
  if (!rows.has(key)) {
    const label = span.cat === "vision" ? `${STAGES.vision} ${numberOf(track)}` : (pulls ? PULLS : STAGES)[span.cat];
    rows.set(key, { stage: span.cat, label, own: [], others: [], queued: [], busy: 0 });
  }
  return rows.get(key);
}

/** The number of a decoder engine; of a further instance of vision behind that of the instance. */
function numberOf(track) {
  const [instance, engine] = [Math.floor(track / THREADS), track % THREADS];
  return instance ? `${instance + 1}.${engine}` : `${engine}`;
}
