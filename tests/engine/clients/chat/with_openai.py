"""The `openai` package, of either major version: chats, responses, completions, files, media, tools, errors."""

import json
from typing import Any

import openai
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
    Branch,
    Drawing,
    data_url,
)

client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)
chat = client.chat.completions

assert client.models.list().data[0].id == client.models.retrieve(MODEL).id == MODEL


def user(*content: Any) -> Any:
    return {"role": "user", "content": content[0] if len(content) == 1 else list(content)}


def text(words: str) -> Any:
    return {"type": "text", "text": words}


def said(message: Any) -> str:
    return (chat.create(model=MODEL, messages=[message], temperature=0, max_tokens=20).choices[0].message.content) or ""


# Media, inline and uploaded
for url in (data_url(PICTURE), client.files.create(file=PICTURE, purpose="vision").id):
    assert PICTURE_ANSWER in said(user({"type": "image_url", "image_url": {"url": url}}, text(PICTURE_QUESTION)))
clip = client.files.create(file=CLIP, purpose="vision")
assert client.files.retrieve(clip.id).bytes == CLIP.stat().st_size
for url in (data_url(CLIP), clip.id):
    assert CLIP_ANSWER in said(user({"type": "video_url", "video_url": {"url": url}}, text(CLIP_QUESTION)))
assert client.files.delete(clip.id).deleted

# Streams: text, bytes of tokens, usage
chunks = list(
    chat.create(
        model=MODEL,
        messages=[user("é😀?")],
        max_tokens=12,
        stream=True,
        logprobs=True,
        top_logprobs=3,
        stream_options={"include_usage": True},
    )
)
streamed = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
tokens = [
    token for chunk in chunks for choice in chunk.choices if choice.logprobs for token in choice.logprobs.content or ()
]
assert b"".join(bytes(token.bytes or ()) for token in tokens).decode(errors="replace") == streamed
usage: Any = chunks[-1].usage
assert usage.completion_tokens == len(tokens)

# Completions that echo the prompt
echoed = client.completions.create(model=MODEL, prompt="é😀x", echo=True, logprobs=0, max_tokens=3).choices[0]
assert echoed.text.startswith("é😀x")
offsets: Any = echoed.logprobs and echoed.logprobs.text_offset
assert offsets == sorted(offsets)

# Tools whose parameters have references, whole, streamed, and answered
tools: Any = [openai.pydantic_function_tool(Drawing)]
turns: list[Any] = [user("Draw.")]
forced: dict[str, Any] = {"model": MODEL, "tools": tools, "tool_choice": "required", "temperature": 0}
parsed = chat.parse(messages=turns, parallel_tool_calls=False, max_tokens=600, **forced).choices[0].message
(call,) = parsed.tool_calls or ()
assert isinstance(call.function.parsed_arguments, Drawing)
with chat.stream(messages=turns, max_tokens=600, **forced, parallel_tool_calls=False) as stream:
    kinds = {event.type for event in stream}
    final = stream.get_final_completion().choices[0].message
assert "tool_calls.function.arguments.done" in kinds
assert [each.function for each in final.tool_calls or ()] == [each.function for each in parsed.tool_calls or ()]
for earlier in (parsed, final, final.model_dump()):
    result = {"role": "tool", "tool_call_id": call.id, "content": "Drawn."}
    assert chat.create(model=MODEL, messages=[*turns, earlier, result], tools=tools, max_tokens=4).choices

endless: Any = {**forced, "tools": [openai.pydantic_function_tool(Branch)], "max_tokens": 40}
assert chat.create(messages=turns, **endless).choices[0].finish_reason in ("tool_calls", "length")

# A call that a limit cut off goes back with its result
cut = chat.create(messages=turns, max_tokens=12, **forced).choices[0]
assert cut.finish_reason == "length"
results = [{"role": "tool", "tool_call_id": each.id, "content": "?"} for each in cut.message.tool_calls or ()]
assert chat.create(model=MODEL, messages=[*turns, cut.message, *results, *turns], max_tokens=4).choices

# Structured answers, and reasoning
drawing = chat.parse(model=MODEL, messages=turns, response_format=Drawing, temperature=0, max_tokens=600)
assert isinstance(drawing.choices[0].message.parsed, Drawing)
thinking: Any = chat.create(model=MODEL, messages=turns, max_tokens=8, extra_body=THINK).choices[0].message
assert thinking.reasoning_content
assert chat.create(model=MODEL, messages=[*turns, thinking, *turns], max_tokens=4).choices

# Responses: media, streams, tools, structured answers, items sent back
picture = client.files.create(file=PICTURE, purpose="vision").id
question: Any = [
    {"type": "input_image", "file_id": picture, "detail": "auto"},
    {"type": "input_text", "text": PICTURE_QUESTION},
]
answer = client.responses.create(model=MODEL, input=[user(*question)], temperature=0)
assert PICTURE_ANSWER in answer.output_text
flat: Any = [openai.pydantic_function_tool(Drawing)["function"] | {"type": "function"}]
with client.responses.stream(
    model=MODEL, input="Draw.", tools=flat, tool_choice="required", parallel_tool_calls=False, temperature=0
) as events:
    for _ in events:
        pass
    response = events.get_final_response()
(item,) = response.output
assert item.type == "function_call"
assert json.loads(item.arguments)
output: Any = {"type": "function_call_output", "call_id": item.call_id, "output": "Drawn."}
again = client.responses.create(model=MODEL, input=[*turns, item, output], tools=flat, max_output_tokens=8)
assert again.status in ("completed", "incomplete")
shape = client.responses.parse(model=MODEL, input="Draw.", text_format=Drawing, temperature=0)
assert isinstance(shape.output_parsed, Drawing)

# Errors have their class and name the field
wrongs: dict[str, Any] = {
    "temperature": ({"temperature": -1}, openai.BadRequestError),
    "temprature": ({"extra_body": {"temprature": 1}}, openai.BadRequestError),
    "model": ({"model": "gpt-4"}, openai.NotFoundError),
}
for param, (wrong, kind) in wrongs.items():
    try:
        chat.create(**{"model": MODEL, "messages": turns, **wrong})
    except kind as error:
        named = error.param
    else:
        named = "nothing"
    assert named == param
