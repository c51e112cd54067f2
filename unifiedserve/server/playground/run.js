/** One request to one engine: its answer, its times, and what the stages did for it. */

import { milliseconds } from "./format.js";
import { Gantt } from "./gantt.js";
import { chat, randomName, ServerError } from "./server.js";
import { ContactSheet } from "./sheet.js";

export class Run extends EventTarget {
  /** `engine` is {base, events, label, viewer}; `pictures` are frames of the medium that are known already. */
  constructor(engine, pictures) {
    super();
    this.engine = engine;
    this.pictures = pictures;
    this.request = randomName();
    this.state = "waiting"; // then "running", and at last "done", "stopped" or "failed"
    this.answer = "";
    this.prefilled = []; // the end of the prompt's last chunk, which gives the first token, and
    this.decoded = []; // of each step of decode; in microseconds of the engine's clock
    this.gantt = new Gantt();
    this.sheets = [];
    this.controller = new AbortController();
    this.pause = undefined; // of a stream beside it, if there was one, the longest; milliseconds
  }

  get id() {
    return `chatcmpl-${this.request}`;
  }

  /** When the tokens were there. */
  get steps() {
    return [...this.prefilled, ...this.decoded];
  }

  get active() {
    return this.state === "waiting" || this.state === "running";
  }

  stop() {
    this.controller.abort();
  }

  /** Resolves when the answer has ended, in whatever way. */
  async ask(body) {
    const { base, events, viewer } = this.engine;
    events.addEventListener("admitted", this.#onAdmitted);
    events.addEventListener("frames", this.#onFrames);
    events.addEventListener("spans", this.#onSpans);
    this.started = performance.now();
    try {
      const headers = { "X-Request-Id": this.request, "X-Viewer": viewer };
      for await (const chunk of chat(base, body, headers, this.controller.signal)) this.#take(chunk);
      this.#change("done");
    } catch (error) {
      this.error = error;
      if (this.controller.signal.aborted) this.#change("stopped");
      else {
        if (!(error instanceof ServerError)) console.error(error);
        this.#change("failed");
      }
    }
    this.ended = performance.now();
    this.dispatchEvent(new Event("ended"));
  }

  /** Names and values: the first token as this page saw it, the times between tokens as the engine did. */
  figures() {
    const steps = this.steps;
    const gaps = steps.slice(1).map((time, i) => (time - steps[i]) / 1000);
    const seconds = (steps.at(-1) - steps[0]) / 1e6;
    const beside = this.pause === undefined ? {} : { "longest pause of a stream beside": milliseconds(this.pause) };
    return {
      "TTFT in this browser": milliseconds(this.first - this.started),
      "TBT p50": milliseconds(quantile(gaps, 0.5)),
      "TBT p99": milliseconds(quantile(gaps, 0.99)),
      "tokens/s": seconds > 0 ? (gaps.length / seconds).toFixed(1) : "–",
      ...beside,
    };
  }

  /** The longest time between two tokens, in milliseconds, of those that fell into another run's; undefined if none. */
  longestPause(other) {
    const { arrival } = other.admitted;
    const end = other.steps.at(-1) ?? Infinity;
    const steps = this.steps;
    const gaps = steps.slice(1).map((time, i) => ({ time, from: steps[i] }));
    const meanwhile = gaps.filter(({ time, from }) => time > arrival && from < end);
    return meanwhile.length ? Math.max(...meanwhile.map(({ time, from }) => (time - from) / 1000)) : undefined;
  }

  /** Draws the stages' work so far; the axis ends now, or when the answer did. */
  draw() {
    if (!this.admitted) return;
    const { arrival } = this.admitted;
    const end = arrival + 1000 * ((this.ended ?? performance.now()) - this.started);
    this.gantt.draw(this.engine.events.spans, this.id, arrival, end);
  }

  #take(chunk) {
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (!choice || choice.delta.role) return;
    if (!this.first) {
      this.first = performance.now();
      for (const sheet of this.sheets) sheet.finish();
    }
    this.finish = choice.finish_reason;
    this.answer += choice.delta.content ?? "";
    this.#change("running");
  }

  #change(state) {
    this.state = state;
    this.dispatchEvent(new Event("change"));
  }

  #onAdmitted = ({ detail }) => {
    if (detail.request !== this.id) return;
    this.admitted = detail;
    this.sheets = detail.media.map((medium) => new ContactSheet(medium, this.pictures));
    this.dispatchEvent(new Event("admitted"));
  };

  #onSpans = ({ detail }) => {
    for (const { name, cat, ts, dur, args } of detail.events) {
      if (name === "queue" || !args.requests.includes(this.id)) continue;
      if (cat === "prefill") this.prefilled = [ts + dur];
      if (cat === "decode") this.decoded.push(ts + dur);
    }
  };

  #onFrames = ({ detail }) => {
    if (detail.request === this.id) this.sheets[detail.medium]?.add(detail.frames);
  };
}

function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
