"""Let a model call a function, and answer with what it returned: `python examples/call_tools.py [URL]`.

It needs a model whose chat template has a place for tools, such as Qwen/Qwen3-VL-2B-Instruct; the bundled one has none.
"""

import json
import os
import sys

from openai import OpenAI

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{URL}/v1", api_key=os.environ.get("OPENAI_API_KEY", "none"))
model = client.models.list().data[0].id


def weather(city: str, days: int) -> str:
    """Return a forecast; a real one would ask a service."""
    return f"sun in {city} for {days} days"


tool = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Forecast the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
        },
    },
}
messages = [{"role": "user", "content": "Will the sun shine in Rome in the next three days?"}]
asked = client.chat.completions.create(
    model=model,
    messages=messages,
    tools=[tool],
    tool_choice={"type": "function", "function": {"name": "weather"}},  # "auto" lets the model decide
    max_tokens=200,
)
message = asked.choices[0].message
messages.append(message.model_dump(exclude_none=True))
for call in message.tool_calls:
    result = weather(**json.loads(call.function.arguments))
    print(f"{call.function.name}({call.function.arguments}) = {result}")
    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
answer = client.chat.completions.create(model=model, messages=messages, tools=[tool], max_tokens=64)
print(answer.choices[0].message.content)
