"""Convert a request to /v1/responses to a chat request: the same conversation, tools and limits."""

from typing import Any, NamedTuple, cast

from unifiedserve.errors import RequestError
from unifiedserve.server.chat.request import ChatRequest, Function, FunctionName, NamedTool, Tool
from unifiedserve.server.requests.formats import JsonSchema, NamedSchema, ResponseFormat
from unifiedserve.server.requests.messages import (
    EarlierCall,
    EarlierFunction,
    File,
    FilePart,
    FrameImage,
    ImagePart,
    ImageURL,
    Message,
    Part,
    TextPart,
    VideoPart,
    VideoURL,
    text_or_parts,
)
from unifiedserve.server.requests.parse import convert
from unifiedserve.server.requests.renaming import Names
from unifiedserve.server.responses.exchange import Items
from unifiedserve.server.responses.request import (
    Content,
    FunctionCallItem,
    FunctionOutputItem,
    FunctionTool,
    InputFile,
    InputImage,
    InputItem,
    InputVideo,
    MessageItem,
    NamedFunction,
    ReasoningItem,
    Refusal,
    ResponsesRequest,
    SchemaFormat,
    TextOptions,
)
from unifiedserve.server.responses.store import PREVIOUS

_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


class Asked(NamedTuple):
    """Pair a chat request with the client's names of its fields."""

    chat: ChatRequest
    names: Names


def asked_chat(asked: ResponsesRequest, earlier: Items, own: Items) -> Asked:
    """Return a request whose items come after earlier ones as a chat request.

    Raises RequestError 400 for items that are malformed.
    """
    messages = [Message(role="system", content=asked.instructions)] if asked.instructions else []
    places: dict[str, str] = {}
    for raw in earlier:
        _add(messages, _item(raw, PREVIOUS), PREVIOUS)
        places[f"messages[{len(messages) - 1}]"] = PREVIOUS
    for number, raw in enumerate(own):
        place = "input" if isinstance(asked.input, str) else f"input[{number}]"
        item = _item(raw, place)
        _add(messages, item, place)
        places |= _places(f"messages[{len(messages) - 1}]", item, place)
    return Asked(_chat(asked, messages), Names(_NAMES, places, "input"))


def _chat(asked: ResponsesRequest, messages: list[Message]) -> ChatRequest:
    choice = asked.tool_choice
    return ChatRequest(
        messages=messages,
        max_completion_tokens=asked.max_output_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        stream=asked.stream,
        reasoning_effort=asked.reasoning.effort if asked.reasoning else None,
        response_format=_response_format(asked.text or TextOptions()),
        tools=[_tool(tool) for tool in asked.tools or ()],
        tool_choice=NamedTool(type="function", function=FunctionName(name=choice.name))
        if isinstance(choice, NamedFunction)
        else choice,
        parallel_tool_calls=asked.parallel_tool_calls,
        media_io_kwargs=asked.media_io_kwargs,
        mm_processor_kwargs=asked.mm_processor_kwargs,
        max_ttft=asked.max_ttft,
        return_media_usage=asked.return_media_usage,
        chat_template_kwargs=asked.chat_template_kwargs,
        priority=asked.priority,
        slo_ttft=asked.slo_ttft,
        deadline=asked.deadline,
        resume=asked.resume,
    )


def _item(raw: dict[str, Any], place: str) -> InputItem:
    return cast(InputItem, convert({"type": "message", **raw}, InputItem, place))


def _places(message: str, item: InputItem, place: str) -> dict[str, str]:
    """Return where a message and its parts come from, by their names in the chat."""
    match item:
        case MessageItem(content=list() as parts):
            field = "content"
        case FunctionOutputItem(output=list() as parts):
            field = "output"
        case _:
            return {message: place}
    inside = {f"{message}.content[{position}]": f"{place}.{field}[{position}]" for position in range(len(parts))}
    return {message: place, **inside}


def _add(messages: list[Message], item: InputItem, place: str) -> None:
    """Append an item; an assistant's thoughts, words and calls, one item each, are one message."""
    last = messages[-1] if messages and messages[-1].role == "assistant" else None
    match item:
        case MessageItem():
            content = item.content if isinstance(item.content, str) else _parts(item.content, f"{place}.content")
            if item.role == "assistant" and last is not None and not last.content and not last.tool_calls:
                last.content = content
            else:
                messages.append(Message(role=item.role, content=content))
        case ReasoningItem():
            thought = "".join(part.text for part in item.content or ())
            messages.append(Message(role="assistant", content="", reasoning_content=thought))
        case FunctionCallItem():
            call = EarlierCall(id=item.call_id, function=EarlierFunction(name=item.name, arguments=item.arguments))
            if last is None:
                messages.append(last := Message(role="assistant"))
            last.tool_calls = last.tool_calls or []
            last.tool_calls.append(call)
        case FunctionOutputItem():
            messages.append(Message(role="tool", content=_output(item.output, place), tool_call_id=item.call_id))


def _output(output: str | list[Content], place: str) -> str | list[Part]:
    """Return what a tool gave: one text, or parts if there are media among it."""
    if isinstance(output, str):
        return output
    return text_or_parts(_parts(output, f"{place}.output"))


def _parts(contents: list[Content], place: str) -> list[Part]:
    return [_part(content, f"{place}[{position}]") for position, content in enumerate(contents)]


def _part(content: Content, place: str) -> Part:
    match content:
        case InputImage():
            _check_one(place, file_id=content.file_id, image_url=content.image_url)
            url = content.file_id or content.image_url or ""
            return ImagePart(image_url=ImageURL(url=url, detail=content.detail))
        case InputVideo():
            _check_one(place, file_id=content.file_id, video_url=content.video_url)
            video = content.file_id or content.video_url or ""
            return VideoPart(video_url=VideoURL(url=video, fps=content.fps))
        case InputFile():
            _check_one(place, file_id=content.file_id, file_data=content.file_data, file_url=content.file_url)
            url = content.file_id or content.file_data or content.file_url or ""
            return FilePart(file=File(file_data=url, filename=content.filename))
        case Refusal():
            return TextPart(text=content.refusal)
        case _:
            return TextPart(text=content.text)


def _check_one(place: str, **fields: str | list[FrameImage] | None) -> None:
    """Raise RequestError 400 unless exactly one of a medium's location fields is given."""
    if sum(value is not None for value in fields.values()) != 1:
        names = " or ".join(f"`{name}`" for name in fields)
        raise RequestError(f"`{place}` needs either {names}.", param=place)


def _tool(tool: FunctionTool) -> Tool:
    function = Function(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return Tool(type="function", function=function)


def _response_format(asked: TextOptions) -> ResponseFormat | None:
    given = asked.format
    if not isinstance(given, SchemaFormat):
        return given
    schema = NamedSchema(name=given.name, schema=given.schema, description=given.description, strict=given.strict)
    return JsonSchema(json_schema=schema)
