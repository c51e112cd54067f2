/** What a question is about: a file that is dropped, chosen or a sample, with its preview and its upload. */

import { byId, element } from "./dom.js";
import { bytes } from "./format.js";
import { upload } from "./server.js";

/** Types of files that may be media: browsers have none for some containers, which the server looks into. */
const MEDIUM = /^$|^(video|image)\/|^application\/(ogg|mxf|octet-stream|vnd.rn-realmedia)$/;

class Medium {
  constructor(file) {
    this.file = file;
    this.kind = file.type.startsWith("image/") ? "image" : "video";
    this.pictures = new Map(); // frames that were seen, by their index
    this.controller = new AbortController();
    this.progress = element("progress", { max: 1, value: 0, "aria-label": "Upload" });
    this.status = element("span", { class: "muted small", role: "status" }, "uploading …");
    this.used = false;
    this.upload();
  }

  /** The id of the uploaded file, for a question; raises ServerError. */
  use() {
    this.used = true;
    return this.uploaded;
  }

  /** The part of a message that stands for the uploaded file. */
  part(id) {
    return { type: `${this.kind}_url`, [`${this.kind}_url`]: { url: id } };
  }

  upload() {
    this.uploaded = this.#upload();
    this.uploaded.catch(() => {}); // whoever asks about it is told
  }

  async #upload() {
    this.progress.hidden = false;
    try {
      const { id } = await upload(this.file, this.controller.signal, (share) => {
        this.progress.value = share;
        this.status.textContent = share < 1 ? `uploading ${Math.round(share * 100)} %` : "checking …";
      });
      this.progress.hidden = true;
      this.status.textContent = "uploaded";
      return id;
    } catch (error) {
      this.progress.hidden = true;
      this.status.textContent = error.message;
      throw error;
    }
  }

  /** To look at; `release` it when it is shown no more. */
  preview() {
    this.source = URL.createObjectURL(this.file);
    if (this.kind === "image") return [element("img", { src: this.source, alt: this.file.name })];
    if (!this.file.type.startsWith("video/")) return [];
    return [element("video", { src: this.source, controls: true, muted: true, playsInline: true, loop: true })];
  }

  release() {
    URL.revokeObjectURL(this.source);
    if (!this.used) this.controller.abort();
  }
}

/** A button that fills in a question. */
function suggestion(text) {
  const onclick = () => {
    byId("question").value = text;
    byId("question").focus();
  };
  return element("button", { type: "button", class: "chip", onclick }, text);
}

export class MediumPicker {
  constructor(settings) {
    this.settings = settings;
    this.drop = byId("drop");
    this.shown = byId("medium");
    this.error = byId("medium-error");
    this.suggestions = byId("suggestions");
    this.chosen = null;
    const input = byId("file");
    input.addEventListener("change", () => {
      if (input.files.length) this.choose(input.files[0]);
      input.value = "";
    });
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.drop.classList.add("over");
    });
    document.addEventListener("dragleave", () => this.drop.classList.remove("over"));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      this.drop.classList.remove("over");
      if (event.dataTransfer.files.length) this.choose(event.dataTransfer.files[0]);
    });
    for (const sample of settings.samples) {
      const onclick = () => this.#chooseSample(sample);
      byId("samples").append(element("button", { type: "button", class: "chip", onclick }, `Sample: ${sample.name}`));
    }
  }

  /** `questions` are suggestions. */
  choose(file, questions = []) {
    this.clear();
    const limit = this.settings.max_upload_bytes;
    if (file.size > limit) {
      const sizes = `${file.name} has ${bytes(file.size)}; this server takes at most ${bytes(limit)}`;
      this.#fail(`${sizes} (its option --max-media-mib).`);
      return;
    }
    if (file.size === 0) {
      this.#fail(`${file.name} is empty.`);
      return;
    }
    if (!MEDIUM.test(file.type)) {
      this.#fail(`${file.name} is neither a video nor an image (its type is ${file.type}).`);
      return;
    }
    const medium = new Medium(file);
    const remove = element("button", { type: "button", class: "quiet", onclick: () => this.clear() }, "Remove");
    const name = element("strong", {}, file.name);
    const about = element("div", {}, name, ` ${bytes(file.size)} `, medium.status, medium.progress);
    this.shown.replaceChildren(...medium.preview(), about, remove);
    this.shown.hidden = false;
    this.drop.hidden = true;
    this.suggestions.replaceChildren(...questions.map(suggestion));
    this.chosen = medium;
  }

  clear() {
    this.error.hidden = true;
    this.shown.hidden = true;
    this.drop.hidden = false;
    this.shown.replaceChildren();
    this.suggestions.replaceChildren();
    this.chosen?.release();
    this.chosen = null;
  }

  async #chooseSample(sample) {
    try {
      const response = await fetch(sample.url);
      const type = response.headers.get("Content-Type");
      this.choose(new File([await response.blob()], sample.name, { type }), sample.questions);
    } catch {
      this.#fail("The sample cannot be loaded. Is the server still running?");
    }
  }

  #fail(message) {
    this.error.textContent = message;
    this.error.hidden = false;
  }
}
