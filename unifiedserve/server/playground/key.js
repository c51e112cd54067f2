/** The key of a server that has keys. */

import { element } from "./dom.js";

const COOKIE = "unifiedserve-key"; // events and pictures can be asked for with no header of ours

/** Asks for the key until there is one, and has the browser send it from then on; `refused` if there was a wrong one. */
export function askForKey(refused) {
  return new Promise((resolve) => {
    const input = element("input", { type: "password", name: "key", required: true, "aria-label": "Key" });
    const hint = refused ? "The server does not know this key." : "This server is for those who have one of its keys.";
    const form = element(
      "form",
      { method: "dialog" },
      element("p", { role: refused ? "alert" : "note" }, hint),
      input,
      element("button", { type: "submit" }, "Use this key"),
    );
    const dialog = element("dialog", { class: "key" }, form);
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    form.addEventListener("submit", () => {
      const secure = location.protocol === "https:" ? "; Secure" : "";
      document.cookie = `${COOKIE}=${encodeURIComponent(input.value.trim())}; path=/; SameSite=Strict${secure}`;
      dialog.remove();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
