/** The sampled frames of a request's medium, each as soon as it is decoded. */

import { element } from "./dom.js";
import { clock } from "./format.js";

export class ContactSheet {
  /** `known` are pictures of this medium from earlier requests, by the frame's index; new ones are added to it. */
  constructor(medium, known) {
    this.medium = medium;
    this.known = known;
    this.cells = Array.from({ length: medium.frames }, (_, number) => this.#cell(number));
    this.count = element("p", { class: "muted small", role: "status" });
    const seen = element("p", { class: "muted small" }, described(medium));
    this.root = element("div", {}, element("ol", { class: "sheet" }, ...this.cells), this.count, seen);
    for (let number = 0; number < medium.frames; number++) this.#fill(number);
    this.#tell();
  }

  add(frames) {
    for (const { number, jpeg } of frames) {
      this.known.set(this.#index(number), `data:image/jpeg;base64,${jpeg}`);
      this.#fill(number);
    }
    this.#tell();
  }

  /** All frames have been decoded that had to be. */
  finish() {
    this.finished = true;
    for (const cell of this.cells) cell.classList.remove("waiting");
    this.#tell();
  }

  #index(number) {
    return this.medium.indices[number] ?? number;
  }

  #cell(number) {
    const seconds = this.medium.seconds[number];
    const caption = seconds === undefined ? [] : [element("span", {}, clock(seconds))];
    return element("li", { class: "waiting" }, ...caption);
  }

  #fill(number) {
    const source = this.known.get(this.#index(number));
    const cell = this.cells[number];
    if (!source || cell.querySelector("img")) return;
    const seconds = this.medium.seconds[number];
    const alt = seconds === undefined ? "The image" : `Frame at ${clock(seconds)}`;
    cell.classList.remove("waiting");
    cell.prepend(element("img", { src: source, alt, title: alt }));
  }

  #shown() {
    return this.cells.filter((cell) => cell.querySelector("img")).length;
  }

  #tell() {
    const total = this.cells.length;
    const missing = this.finished && this.#shown() < total;
    const note = missing ? "the others were known from before, or gone too soon to be shown" : "as the model sees them";
    this.count.textContent = `${this.#shown()} of ${total} ${total === 1 ? "frame" : "frames"}, ${note}`;
  }
}

/** The sizes, tokens and packets of a medium, in a line. */
function described({ width, height, pictures, tokens, packets }) {
  const sizes = pictures.map(({ width, height, count }) => `${count > 1 ? `${count} of ` : ""}${width}×${height}`);
  const decoded = packets ? [`${packets.decode} of ${packets.total} packets to decode`] : [];
  return [`${width}×${height} seen as ${sizes.join(" and ")}`, `${tokens} tokens`, ...decoded].join(", ");
}
