/** How full the patch, visual and KV buffers are, and how many requests the stages hold. */

import { element } from "./dom.js";

const milliseconds = (seconds) => `${Math.round(1000 * seconds)} ms`;
const STAGES = ["vision", "encode", "prefill", "decode"];
const NAMES = { patch: "Patches", visual: "Visual tokens", kv: "KV cache" };

export class Buffers {
  constructor(root, stages) {
    this.root = root;
    this.stages = stages;
    this.shown = new Map();
  }

  show({ buffers, stages, streams }) {
    const held = STAGES.filter((stage) => stages[stage]).map((stage) => {
      const { running, waiting } = stages[stage];
      return `${stage} ${running}${waiting ? ` (${waiting} waiting)` : ""}`;
    });
    const paced = streams?.tbt
      ? `Beside videos: ${milliseconds(streams.tbt)} between tokens, target ${milliseconds(streams.target)}; ` +
        `videos get ${Math.round(100 * streams.share)} % of their budgets.`
      : "";
    const loads = held.length ? `Requests in the stages: ${held.join(", ")}. ` : "";
    this.stages.textContent = loads + paced;
    for (const name of Object.keys(NAMES)) {
      const { used, cached, peak, total } = buffers[name] ?? { used: 0, cached: 0, peak: 0, total: 0 };
      const { bar, kept, most, text } = this.#of(name);
      const share = (pages) => `${total ? (100 * pages) / total : 0}%`;
      bar.style.inlineSize = share(used);
      kept.style.inlineSize = share(cached);
      most.style.insetInlineStart = share(peak);
      most.hidden = !peak;
      const notes = [cached ? `, ${cached} cached` : "", peak ? `, at most ${peak}` : ""].join("");
      text.textContent = total ? `${used} of ${total} pages${notes}` : "–";
    }
  }

  #of(name) {
    if (!this.shown.has(name)) {
      const parts = {
        bar: element("span", { class: "used" }),
        kept: element("span", { class: "cached" }),
        most: element("span", { class: "peak" }),
        text: element("span", { class: "muted small" }),
      };
      const meter = element("span", { class: "meter", "aria-hidden": "true" }, parts.bar, parts.kept, parts.most);
      const label = element("span", {}, NAMES[name]);
      this.root.append(element("div", { class: "buffer", "data-buffer": name }, label, meter, parts.text));
      this.shown.set(name, parts);
    }
    return this.shown.get(name);
  }
}
