"""LangChain: messages, streams, tools, structured answers, media, an agent; over chats and over responses."""

from typing import Any

from given import (
    CLIP,
    CLIP_ANSWER,
    CLIP_QUESTION,
    KEY,
    MODEL,
    PICTURE,
    PICTURE_ANSWER,
    PICTURE_QUESTION,
    URL,
    Drawing,
    data_url,
)
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr


@tool
def draw(drawing: Drawing) -> str:
    """Draw a shape."""
    return f"Drawn in {drawing.colour}."


def model(**options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=URL, api_key=SecretStr(KEY), model=MODEL, temperature=0, max_tokens=600, max_retries=0, **options
    )


for responses in (False, True):
    chat = model(use_responses_api=responses)
    whole = None
    for chunk in chat.stream("Hello."):
        whole = chunk if whole is None else whole + chunk
    assert isinstance(whole, AIMessageChunk)
    assert whole.text
    picture = {"type": "image", "base64": data_url(PICTURE).partition(",")[2], "mime_type": "image/jpeg"}
    seen = chat.invoke([HumanMessage([picture, {"type": "text", "text": PICTURE_QUESTION}])])
    assert PICTURE_ANSWER in seen.text

    artist = chat.bind_tools([draw], tool_choice="required", parallel_tool_calls=False)
    call = artist.invoke("Draw.")
    (wanted,) = call.tool_calls
    Drawing.model_validate(wanted["args"]["drawing"])
    result = ToolMessage(draw.invoke(wanted["args"]), tool_call_id=wanted["id"] or "")
    answer = chat.bind_tools([draw]).invoke([HumanMessage("Draw."), call, result])
    chat.invoke([HumanMessage("Draw."), call, result, answer, HumanMessage("Again.")])
    streamed = None
    for chunk in artist.stream("Draw."):
        streamed = chunk if streamed is None else streamed + chunk
    assert isinstance(streamed, AIMessageChunk)
    assert streamed.tool_calls[0]["args"] == wanted["args"]

    for method in ("json_schema", "function_calling"):
        assert isinstance(chat.with_structured_output(Drawing, method=method).invoke("Draw."), Drawing)
    agent: Any = create_agent(chat, tools=[draw], system_prompt="Draw.")
    assert agent.invoke({"messages": [{"role": "user", "content": "Draw."}]})["messages"]

options: Any = {"media_io_kwargs": {"video": {"num_frames": 8}}}
video = {"type": "video_url", "video_url": {"url": data_url(CLIP)}}
seen = model(extra_body=options).invoke([HumanMessage([video, {"type": "text", "text": CLIP_QUESTION}])])
assert CLIP_ANSWER in seen.text
