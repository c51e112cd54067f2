"""Get answers in a form that programs can read: `python examples/structured_output.py [URL]`.

The server holds every token to the choice or the schema, so answers parse whatever the model would rather say.
"""

import base64
import json
import os
import sys

from openai import OpenAI

from unifiedserve.samples import FOLDER

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{URL}/v1", api_key=os.environ.get("OPENAI_API_KEY", "none"))
picture = base64.b64encode((FOLDER / "shapes.jpg").read_bytes()).decode()
COLOURS = ["blue", "green", "purple", "red", "white", "yellow"]


def ask(question: str, **form: object) -> str:
    """Return the answer to a question about the picture, in this form."""
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{picture}"}},
        {"type": "text", "text": question},
    ]
    answer = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": content}],
        max_tokens=64,
        temperature=0,
        **form,
    )
    return answer.choices[0].message.content


sentences = [f"The triangle is {colour}." for colour in COLOURS]
chosen = ask("Tell me the color of the triangle.", extra_body={"structured_outputs": {"choice": sentences}})
print("one of six sentences:", chosen)

# The bundled model has never seen JSON: what it fills in here fits the schema, and is a guess. Other models know.
schema = {"type": "object", "properties": {"colour": {"enum": COLOURS}}, "required": ["colour"]}
answer = ask(
    "Tell me the color of the triangle.",
    response_format={"type": "json_schema", "json_schema": {"name": "triangle", "schema": schema}},
)
print("by a JSON schema:", json.loads(answer))
