"""LiteLLM, as its providers `openai` and `hosted_vllm`: media, streams, tools, structured answers, responses."""

import json
from typing import Any

import litellm
from given import (
    CLIP,
    CLIP_ANSWER,
    CLIP_QUESTION,
    KEY,
    MODEL,
    PICTURE,
    PICTURE_ANSWER,
    PICTURE_QUESTION,
    THINK,
    URL,
    Drawing,
    data_url,
)

litellm.telemetry = False
TOOL = {
    "type": "function",
    "function": {"name": "draw", "description": "Draw a shape.", "parameters": Drawing.model_json_schema()},
}
TURNS: list[Any] = [{"role": "user", "content": "Draw."}]


def about(kind: str, url: str, question: str) -> list[Any]:
    part = {"type": kind, kind: {"url": url}}
    return [{"role": "user", "content": [part, {"type": "text", "text": question}]}]


for provider in ("openai", "hosted_vllm"):
    asked: dict[str, Any] = {
        "model": f"{provider}/{MODEL}",
        "api_base": URL,
        "api_key": KEY,
        "temperature": 0,
        "max_tokens": 600,
        "num_retries": 0,
    }

    def said(messages: list[Any], asked: dict[str, Any] = asked, **options: Any) -> Any:
        return litellm.completion(messages=messages, **asked, **options).choices[0].message

    assert PICTURE_ANSWER in said(about("image_url", data_url(PICTURE), PICTURE_QUESTION)).content
    assert CLIP_ANSWER in said(about("video_url", data_url(CLIP), CLIP_QUESTION)).content
    call = said(TURNS, tools=[TOOL], tool_choice="required")
    Drawing.model_validate_json(call.tool_calls[0].function.arguments)
    chunks = list(litellm.completion(messages=TURNS, tools=[TOOL], tool_choice="required", stream=True, **asked))
    whole: Any = litellm.stream_chunk_builder(chunks, messages=TURNS)
    streamed = whole.choices[0].message
    assert streamed.tool_calls[0].function.arguments == call.tool_calls[0].function.arguments
    for earlier in (call, streamed, streamed.model_dump()):
        calls = earlier["tool_calls"] if isinstance(earlier, dict) else earlier.tool_calls
        results = [{"role": "tool", "tool_call_id": each["id"], "content": "Drawn."} for each in calls]
        assert said([*TURNS, earlier, *results], tools=[TOOL]) is not None
    Drawing.model_validate_json(said(TURNS, response_format=Drawing).content)
    thought = said(TURNS, extra_body=THINK)
    assert thought.reasoning_content
    assert said([*TURNS, thought, *TURNS]) is not None

flat = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
asked = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": KEY, "temperature": 0}
response: Any = litellm.responses(input="Draw.", tools=[flat], tool_choice="required", **asked)
assert json.loads(response.output[0].arguments)["colour"] in ("red", "blue")
