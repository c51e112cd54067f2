/** The same request for a terminal and for Python, to copy. */

import { element } from "./dom.js";

const FILE = "\u0000"; // where the id of the uploaded file belongs

/** A closed box with both; `body` is what the page sends, `file` the name of its medium, if it has one. */
export function snippets(body, file) {
  const texts = { curl: curl(body, file), "Python (openai)": python(body, file) };
  const parts = Object.entries(texts).map(([name, text]) => {
    const copy = element("button", { type: "button", class: "quiet", onclick: () => copied(copy, text) }, "Copy");
    return element("div", { class: "snippet" }, element("h4", {}, name, copy), element("pre", { tabIndex: 0 }, text));
  });
  return element("details", {}, element("summary", {}, "The same request with curl and Python"), ...parts);
}

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select the text to copy it"; // no clipboard without https
  }
}

function curl(body, file) {
  const json = JSON.stringify(withFile(body, FILE), null, 2).replaceAll("'", String.raw`'\''`);
  const lines = [];
  if (file) {
    lines.push(
      `id=$(curl -s ${location.origin}/v1/files -F purpose=vision -F file=@${quoted(file)} |`,
      `  python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')`,
    );
  }
  const spliced = json.replaceAll(JSON.stringify(FILE).slice(1, -1), `'"$id"'`);
  lines.push(`curl -N ${location.origin}/v1/chat/completions -H 'Content-Type: application/json' -d '${spliced}'`);
  return lines.join("\n");
}

function python(body, file) {
  const { messages, media_io_kwargs, ...rest } = withFile(body, FILE);
  const options = Object.entries(rest).map(([name, value]) => `    ${name}=${JSON.stringify(value)},\n`);
  if (media_io_kwargs) options.push(`    extra_body={"media_io_kwargs": ${JSON.stringify(media_io_kwargs)}},\n`);
  const content = JSON.stringify(messages).replaceAll(JSON.stringify(FILE), "file.id");
  const opened = `file = client.files.create(file=open(${JSON.stringify(file ?? "")}, "rb"), purpose="vision")\n`;
  return `from openai import OpenAI

client = OpenAI(base_url="${location.origin}/v1", api_key="none")
${file ? opened : ""}stream = client.chat.completions.create(
    messages=${content},
${options.join("")}    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
`;
}

/** The body with another text in place of the file's id. */
function withFile(body, text) {
  return JSON.parse(JSON.stringify(body), (key, value) => (key === "url" ? text : value));
}

const quoted = (text) => `'${text.replaceAll("'", String.raw`'\''`)}'`;
