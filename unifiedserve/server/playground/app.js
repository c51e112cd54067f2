/** The page: takes questions, and shows the one that is selected at work. */

import { Buffers } from "./buffers.js";
import { Card } from "./card.js";
import { byId, element } from "./dom.js";
import { LiveEvents } from "./live.js";
import { MediumPicker } from "./medium.js";
import { Run } from "./run.js";
import { randomName, settings } from "./server.js";
import { snippets } from "./snippets.js";
import { setUpTheme } from "./theme.js";
import { workersText } from "./workers.js";

const DRAW_MILLISECONDS = 100;

class Page {
  constructor(server) {
    this.server = server;
    this.viewer = randomName();
    this.engine = this.#connect("", server.compared ? "shared" : "");
    this.compared = server.compared && this.#connect(`${server.compared.slice(1)}/`, "monolithic");
    this.picker = new MediumPicker(server);
    this.cards = [];
    byId("model").textContent = server.model;
    byId("model-note").textContent = server.model_note;
    byId("compare-option").hidden = !server.compared;
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    byId("question").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.submit();
      }
    });
    this.#showLife();
    setInterval(() => this.#redraw(), DRAW_MILLISECONDS);
  }

  submit() {
    const text = byId("question").value.trim();
    if (!text) {
      byId("hint").textContent = "Write a question first.";
      byId("question").focus();
      return;
    }
    const medium = this.picker.chosen;
    byId("hint").textContent = medium ? "" : "No video or image was chosen: the model answers from the text alone.";
    const card = new Card(text, medium, this.#body(text, medium), () => this.select(card));
    this.cards.push(card);
    byId("no-answers").hidden = true;
    byId("answers").prepend(card.root);
    this.select(card);
    this.#ask(card, byId("compare").checked).finally(() => card.finish());
  }

  select(card) {
    for (const each of this.cards) each.select(each === card);
    this.selected = card;
    this.#showSelected();
  }

  #connect(base, label) {
    const events = new LiveEvents(base, this.viewer);
    events.addEventListener("spans", () => (this.changed = true));
    return { base, events, label, viewer: this.viewer };
  }

  async #ask(card, compare) {
    const { medium, body } = card;
    try {
      if (medium) body.messages[0].content.unshift(medium.part(await medium.use()));
    } catch (error) {
      card.fail(error);
      return;
    }
    for (const engine of compare ? [this.engine, this.compared] : [this.engine]) {
      if (card.stopped) return;
      const beside = compare && (await this.#streamBeside(engine));
      const run = new Run(engine, medium?.pictures ?? new Map());
      card.add(run);
      for (const moment of ["admitted", "ended"]) {
        run.addEventListener(moment, () => this.selected === card && this.#showSelected());
      }
      if (this.selected === card) this.#showSelected();
      await run.ask(body);
      if (run.error?.detail?.code === "file_not_found") medium.upload(); // for the next question
      if (beside) {
        if (run.admitted) run.pause = beside.longestPause(run);
        beside.stop();
        if (this.selected === card) this.#showSelected();
      }
    }
  }

  /** A long answer to another question, once it flows: what a request does to the others shows in its pauses. */
  async #streamBeside(engine) {
    const run = new Run(engine, new Map());
    const flowing = new Promise((resolve) => {
      run.addEventListener("change", resolve);
      run.addEventListener("ended", resolve);
    });
    run.ask({
      model: this.server.model,
      messages: [{ role: "user", content: "Tell me a long story." }],
      max_tokens: Math.floor(this.server.max_model_len / 2),
      ignore_eos: true,
    });
    await flowing;
    return run;
  }

  /** What is asked of the API, but for the medium itself. */
  #body(text, medium) {
    const body = {
      model: this.server.model,
      messages: [{ role: "user", content: [{ type: "text", text }] }],
      max_tokens: Number(byId("tokens").value) || 128,
      temperature: 0,
    };
    const frames = Number(byId("frames").value);
    if (frames && medium?.kind === "video") body.media_io_kwargs = { video: { num_frames: frames } };
    return body;
  }

  #showSelected() {
    const { runs, medium, body } = this.selected;
    const parts = runs.map((run, number) => this.#runView(run, number === 0));
    if (!runs.length) parts.push(element("p", { class: "empty" }, "Nothing has been sent yet."));
    if (!medium) parts.push(element("p", { class: "empty" }, "This question has no video or image."));
    if (runs.length) this.selected.snippets ??= snippets(body, medium?.file.name);
    byId("run").replaceChildren(...parts, this.selected.snippets ?? "");
  }

  /** The frames are shown with the first run alone: those of a second are the same. */
  #runView(run, withFrames) {
    run.figureList ??= element("dl", { class: "figures" });
    this.#drawRun(run);
    const heading = run.engine.label ? [element("h3", {}, run.engine.label)] : [];
    const sheets = withFrames ? run.sheets.map((sheet) => sheet.root) : [];
    const waiting = run.admitted || !run.active ? [] : [element("p", { class: "empty" }, "waiting for the server …")];
    const timeline = run.admitted ? [element("h3", {}, "Timeline"), run.gantt.root] : [];
    return element("div", { class: "run" }, ...heading, run.figureList, ...waiting, ...sheets, ...timeline);
  }

  #drawRun(run) {
    run.draw();
    const pairs = Object.entries(run.figures()).map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value)),
    );
    run.figureList.replaceChildren(...pairs);
  }

  /** What is selected is drawn again while it runs, and when spans have come. */
  #redraw() {
    for (const run of this.selected?.runs ?? []) {
      if (run.figureList && (run.active || this.changed)) this.#drawRun(run);
    }
    this.changed = false;
  }

  #showLife() {
    const { events } = this.engine;
    const buffers = new Buffers(byId("buffers"), byId("stages"));
    buffers.show(events.counters);
    events.addEventListener("counters", () => {
      buffers.show(events.counters);
      byId("workers").textContent = workersText(events.counters.workers ?? []);
    });
    events.addEventListener("connection", () => {
      byId("connection").textContent = events.connected ? "live" : "not connected; trying again …";
      byId("connection").dataset.connected = events.connected;
    });
  }
}

setUpTheme(byId("theme"));
try {
  new Page(await settings());
} catch (error) {
  byId("model").textContent = error.message;
}
