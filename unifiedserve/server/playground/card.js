/** A question among the answers: what was asked, how far it is, and what came back. */

import { element } from "./dom.js";

const STATES = { waiting: "working on the prompt …", running: "answering …", stopped: "stopped", failed: "failed" };

export class Card {
  /** `body` is what is asked of the API; `onSelect` is called when a reader wants to see this question's timeline. */
  constructor(text, medium, body, onSelect) {
    this.medium = medium;
    this.body = body;
    this.runs = [];
    this.stopped = false;
    this.answers = element("div");
    this.note = element("p", { class: "muted small", role: "status" }, medium ? "waiting for the upload …" : "");
    this.stop = element("button", { type: "button", class: "quiet", onclick: () => this.#stop() }, "Stop");
    const about = element("span", { class: "muted small" }, medium ? medium.file.name : "no video or image");
    this.title = element("button", { type: "button", class: "title", onclick: onSelect }, text);
    const head = element("div", { class: "head" }, this.title, this.stop);
    this.root = element("li", { class: "card" }, head, about, this.answers, this.note);
  }

  add(run) {
    this.runs.push(run);
    this.note.textContent = "";
    const answer = element("p", { class: "answer", "aria-live": "polite" });
    const status = element("p", { class: "muted small", role: "status" });
    const error = element("p", { class: "error", role: "alert", hidden: true });
    const label = run.engine.label ? [element("h4", {}, run.engine.label)] : [];
    this.answers.append(...label, answer, error, status);
    const show = () => {
      answer.textContent = run.answer.trimStart();
      answer.classList.toggle("streaming", run.active);
      status.textContent = STATES[run.state] ?? ending(run);
      status.dataset.state = run.state;
      if (run.state === "failed") showError(error, run.error);
    };
    run.addEventListener("change", show);
    show();
  }

  /** An error before any request could be sent. */
  fail(reason) {
    const error = element("p", { class: "error", role: "alert" });
    showError(error, reason);
    this.note.replaceWith(error);
  }

  finish() {
    this.stop.hidden = true;
  }

  select(selected) {
    this.root.classList.toggle("selected", selected);
    this.title.setAttribute("aria-pressed", selected);
  }

  #stop() {
    this.stopped = true;
    if (!this.runs.length) this.note.textContent = "stopped";
    for (const run of this.runs) run.stop();
  }
}

function ending({ finish, usage }) {
  const limit = finish === "length" ? ": the limit of tokens was reached" : "";
  const cached = usage.prompt_tokens_details.cached_tokens;
  const reused = cached ? `, ${cached} of them known from before` : "";
  return `done${limit} (${usage.prompt_tokens} tokens in${reused}; ${usage.completion_tokens} out)`;
}

function showError(shown, error) {
  const { code, param } = error.detail ?? {};
  const facts = [error.status || "", code, param].filter(Boolean).join(" · ");
  shown.replaceChildren(error.message, ...(facts ? [element("span", { class: "small" }, ` (${facts})`)] : []));
  shown.hidden = false;
}
