"""From a request to /v1/responses to a chat request: the same conversation, tools and limits."""

from typing import Any, TypeVar, cast

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

U = TypeVar("U", str, str | list[FrameImage])

_PARAMS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


def chat_request(asked: ResponsesRequest, earlier: Items, own: Items) -> ChatRequest:
    """Return a request whose items come after earlier ones as a chat request.

    Raises RequestError 400 for items that are malformed.
    """
    messages = [Message(role="system", content=asked.instructions)] if asked.instructions else []
    for number, raw in enumerate([*earlier, *own], start=-len(earlier)):
        _add(messages, _item(number, raw))
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
    )


def response_param(param: str) -> str:
    """Return the name in requests to /v1/responses of a chat request's field."""
    return next((response for chat, response in _PARAMS.items() if param.startswith(chat)), param)


def _item(number: int, raw: dict[str, Any]) -> InputItem:
    return cast(InputItem, convert({"type": "message", **raw}, InputItem, f"input[{number}]"))


def _add(messages: list[Message], item: InputItem) -> None:
    """Append an item; what an assistant thought, said and called, one item each, is one message."""
    last = messages[-1] if messages and messages[-1].role == "assistant" else None
    match item:
        case MessageItem():
            content = item.content if isinstance(item.content, str) else [_part(part) for part in item.content]
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
            messages.append(Message(role="tool", content=_output(item.output), tool_call_id=item.call_id))


def _output(output: str | list[Content]) -> str | list[Part]:
    """Return what a tool gave: one text, or parts if there are media among it."""
    if isinstance(output, str):
        return output
    return text_or_parts([_part(part) for part in output])


def _part(content: Content) -> Part:
    match content:
        case InputImage():
            url = _location("image_url", content.image_url, content.file_id)
            return ImagePart(image_url=ImageURL(url=url, detail=content.detail))
        case InputVideo():
            return VideoPart(
                video_url=VideoURL(url=_location("video_url", content.video_url, content.file_id), fps=content.fps)
            )
        case InputFile():
            return FilePart(file=File(file_id=content.file_id, file_data=content.file_data or content.file_url))
        case Refusal():
            return TextPart(text=content.refusal)
        case _:
            return TextPart(text=content.text)


def _location(field: str, url: U | None, file_id: str | None) -> U | str:
    """Return the URL of a medium, which may be a file's id."""
    if (url is None) == (file_id is None):
        raise RequestError(f"A part with media needs either `{field}` or `file_id`.", param="input")
    return url or file_id or ""


def _tool(tool: FunctionTool) -> Tool:
    function = Function(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return Tool(type="function", function=function)


def _response_format(asked: TextOptions) -> ResponseFormat | None:
    given = asked.format
    if not isinstance(given, SchemaFormat):
        return given
    schema = NamedSchema(name=given.name, schema=given.schema, description=given.description, strict=given.strict)
    return JsonSchema(json_schema=schema)
