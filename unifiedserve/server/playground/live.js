/** The live events of an engine: the spans of the last requests, the counters, and who wants to know of the rest. */

const KEPT_SPANS = 20_000;
const RETRY_MILLISECONDS = 3000;

export class LiveEvents extends EventTarget {
  spans = [];
  connected = false;

  /** `name` is a secret of this page: requests that carry it show their frames to this page alone. */
  constructor(base, name) {
    super();
    this.counters = { buffers: {}, stages: {} };
    this.#connect(`${base}v1/events?viewer=${name}`);
  }

  #connect(url) {
    const source = new EventSource(url);
    source.addEventListener("open", () => {
      this.spans = []; // the server may be another one, with a clock of its own
      this.#setConnected(true);
    });
    source.addEventListener("error", () => {
      this.#setConnected(false);
      // it tries again by itself, unless the server refused
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.#connect(url), RETRY_MILLISECONDS);
    });
    source.addEventListener("message", (message) => this.#take(JSON.parse(message.data)));
  }

  #setConnected(connected) {
    this.connected = connected;
    this.dispatchEvent(new Event("connection"));
  }

  #take(event) {
    if (event.type === "spans") {
      this.spans.push(...event.events);
      if (this.spans.length > KEPT_SPANS) this.spans.splice(0, this.spans.length - KEPT_SPANS);
    } else if (event.type === "counters") {
      this.counters = event;
    }
    this.dispatchEvent(new CustomEvent(event.type, { detail: event }));
  }
}
