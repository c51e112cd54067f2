/** The server's API, and its errors in plain words. */

import { askForKey } from "./key.js";

export class ServerError extends Error {
  /** `detail` is the error object of the API, if the server sent one. */
  constructor(message, detail = {}, status = 0) {
    super(message);
    this.detail = detail;
    this.status = status;
  }
}

/** A name that nobody can guess. */
export function randomName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function settings() {
  let response = await fetch("playground/settings");
  for (let asked = false; response.status === 401; asked = true) {
    await askForKey(asked);
    response = await fetch("playground/settings");
  }
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

/** Uploads a file; calls `onProgress` with the share that was sent. Resolves to the file's object. */
export function upload(file, signal, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not tell how much has been sent
    const form = new FormData();
    form.append("purpose", "vision");
    form.append("file", file, file.name);
    request.open("POST", "v1/files");
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded / event.total));
    request.addEventListener("load", () => {
      if (request.status === 200) resolve(request.response);
      else reject(apiError(request.response, request.status));
    });
    request.addEventListener("error", () =>
      reject(new ServerError("The connection was lost during the upload. Is the server still running?")),
    );
    request.addEventListener("abort", () => reject(new ServerError("The upload was stopped.")));
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

/** Streams the answer: yields the chunks of the API, raises ServerError. */
export async function* chat(base, body, headers, signal) {
  let response;
  try {
    response = await fetch(`${base}v1/chat/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true }, return_media_usage: true }),
      signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ServerError("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw await errorOf(response);
  let complete = false;
  for await (const data of eventsOf(response.body, signal)) {
    complete = data === "[DONE]";
    if (complete) break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw apiError(chunk);
    yield chunk;
  }
  if (!complete) throw connectionLost();
}

/** The data of server-sent events. */
async function* eventsOf(stream, signal) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) yield event.replace(/^data: /, "");
    }
  } catch (error) {
    throw signal.aborted ? error : connectionLost();
  }
}

const connectionLost = () =>
  new ServerError("The connection was lost in the middle of the answer. What had come is above; ask again.");

async function errorOf(response) {
  return apiError(await response.json().catch(() => null), response.status);
}

function apiError(body, status = 0) {
  const detail = body?.error ?? {};
  return new ServerError(detail.message ?? `The server answered with status ${status}.`, detail, status);
}
