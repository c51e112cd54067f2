"""Convert a request to /v1/messages to a chat request: the same conversation, tools and limits."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.server.anthropic.request import (
    AnyChoice,
    AssistantBlock,
    AssistantTurn,
    AutoChoice,
    Base64Source,
    CountTokensRequest,
    CustomTool,
    FileSource,
    ImageBlock,
    MessagesRequest,
    NoChoice,
    SystemTurn,
    TextBlock,
    ThinkingBlock,
    ThinkingDisabled,
    ThinkingEnabled,
    ToolChoice,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    UserTurn,
    VideoBlock,
    VideoURLSource,
)
from unifiedserve.server.chat.request import ChatRequest, Function, FunctionName, NamedTool, Tool
from unifiedserve.server.requests.formats import JsonSchema, NamedSchema
from unifiedserve.server.requests.messages import (
    EarlierCall,
    EarlierFunction,
    ImagePart,
    ImageURL,
    Message,
    Part,
    TextPart,
    VideoPart,
    VideoURL,
    text_or_parts,
)
from unifiedserve.server.requests.renaming import Names

_NAMES = {
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "thinking",
    "tool_choice": "tool_choice",
}


class Asked(NamedTuple):
    """Pair a chat request with the client's names of its fields."""

    chat: ChatRequest
    names: Names


def asked_chat(asked: MessagesRequest) -> Asked:
    """Return the chat; raise RequestError 400 for a conversation that nobody can go on with."""
    prompt = asked_prompt(asked)
    chat = msgspec.structs.replace(
        prompt.chat,
        max_completion_tokens=asked.max_tokens,
        stream=asked.stream,
        stop=asked.stop_sequences,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        max_ttft=asked.max_ttft,
        return_media_usage=asked.return_media_usage,
        priority=asked.priority,
        slo_ttft=asked.slo_ttft,
        deadline=asked.deadline,
        resume=asked.resume,
    )
    return prompt._replace(chat=chat)


def asked_prompt(asked: CountTokensRequest) -> Asked:
    """Return the chat without its options; raise RequestError as `asked_chat`."""
    turns = _Turns(asked)
    last = turns.messages[-1] if turns.messages else None
    if last is None or (last.role == "assistant" and last.tool_calls):
        where = f"messages[{len(asked.messages) - 1}]"
        reason = "calls tools: send their results in a user's message" if last else "says nothing"
        raise RequestError(f"`{where}` is the last message, and {reason}.", param=where)
    wanted = asked.output_config.format if asked.output_config else None
    template = dict(asked.chat_template_kwargs or {})
    if isinstance(asked.thinking, ThinkingEnabled):
        template.setdefault("enable_thinking", True)
    chat = ChatRequest(
        messages=turns.messages,
        continue_final_message=True if last.role == "assistant" and last.content else None,
        reasoning_effort="none" if isinstance(asked.thinking, ThinkingDisabled) else None,
        response_format=JsonSchema(json_schema=NamedSchema(name="answer", schema=wanted.schema)) if wanted else None,
        tools=[_tool(tool) for tool in asked.tools or ()],
        tool_choice=_choice(asked),
        parallel_tool_calls=False if getattr(asked.tool_choice, "disable_parallel_tool_use", None) else None,
        media_io_kwargs=asked.media_io_kwargs,
        mm_processor_kwargs=asked.mm_processor_kwargs,
        chat_template_kwargs=template,
    )
    return Asked(chat, Names(_NAMES, turns.places, "messages"))


def blocks(asked: CountTokensRequest) -> int:
    """Return how many blocks a conversation has, a text as one."""
    return sum(1 if isinstance(turn.content, str) else len(turn.content) for turn in asked.messages)


class _Turns:
    """Make the messages of a chat from turns. Neighbours of one role are one message."""

    def __init__(self, asked: CountTokensRequest) -> None:
        self.messages: list[Message] = []
        self.places: dict[str, str] = {}
        self._said: list[Part] = []  # by the user in the last message
        if asked.system:
            self._system(asked.system, "system")
        for kind, numbered in groupby(enumerate(asked.messages), lambda each: type(each[1])):
            turns = [(f"messages[{number}]", turn) for number, turn in numbered]
            if kind is AssistantTurn:
                self._assistant(turns[0][0], [block for _, turn in turns for block in _blocks(turn)])
                continue
            for place, turn in turns:
                if isinstance(turn, SystemTurn):
                    self._system(turn.content, place)
                elif isinstance(turn, UserTurn):
                    self._user(place, turn)

    def _system(self, content: str | Sequence[TextBlock], place: str) -> None:
        text = content if isinstance(content, str) else text_or_parts([_part(block) for block in content])
        self._append(Message(role="system", content=text), place)

    def _assistant(self, place: str, blocks: Sequence[AssistantBlock]) -> None:
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
        calls = [_call(block) for block in blocks if isinstance(block, ToolUseBlock)]
        if texts or thoughts or calls:
            message = Message(role="assistant", content="".join(texts) or None, tool_calls=calls or None)
            message.reasoning_content = "".join(thoughts) or None
            self._append(message, place)

    def _user(self, place: str, turn: UserTurn) -> None:
        if isinstance(turn.content, str):
            self._say(TextPart(text=turn.content), place)
            return
        for position, block in enumerate(turn.content):
            where = f"{place}.content[{position}]"
            if isinstance(block, ToolResultBlock):
                self._result(block, where)
            else:
                self._say(_part(block), where)

    def _result(self, block: ToolResultBlock, place: str) -> None:
        if isinstance(block.content, str) or block.content is None:
            self._append(Message(role="tool", content=block.content or "", tool_call_id=block.tool_use_id), place)
            return
        parts = [_part(part) for part in block.content]
        self._append(Message(role="tool", content=text_or_parts(parts), tool_call_id=block.tool_use_id), place)
        for position in range(len(parts)):
            self._note(position, f"{place}.content[{position}]")

    def _say(self, part: Part, place: str) -> None:
        """Add a part; a text alone is a message's whole content, as most clients write it."""
        if self.messages and self.messages[-1].role == "user":
            self.messages[-1].content = self._said
        else:
            self._said = []
            self._append(Message(role="user", content=part.text if isinstance(part, TextPart) else self._said), place)
        self._said.append(part)
        self._note(len(self._said) - 1, place)

    def _append(self, message: Message, place: str) -> None:
        self.messages.append(message)
        self.places[f"messages[{len(self.messages) - 1}]"] = place

    def _note(self, position: int, place: str) -> None:
        """Remember where the part of the last message at this position comes from."""
        self.places[f"messages[{len(self.messages) - 1}].content[{position}]"] = place


def _blocks(turn: Any) -> Sequence[AssistantBlock]:
    return [TextBlock(text=turn.content)] if isinstance(turn.content, str) else turn.content


def _part(block: TextBlock | ImageBlock | VideoBlock) -> Part:
    match block:
        case TextBlock():
            return TextPart(text=block.text)
        case ImageBlock(source=URLSource(url=url)):
            return ImagePart(image_url=ImageURL(url=url))
        case ImageBlock(source=Base64Source() | FileSource() as source):
            return ImagePart(image_url=ImageURL(url=_url(source)))
        case VideoBlock(source=VideoURLSource(url=frames)):
            return VideoPart(video_url=VideoURL(url=frames, fps=block.fps))
        case VideoBlock(source=Base64Source() | FileSource() as source):
            return VideoPart(video_url=VideoURL(url=_url(source), fps=block.fps))
    raise AssertionError(block)


def _url(source: Base64Source | FileSource) -> str:
    if isinstance(source, FileSource):
        return source.file_id
    return f"data:{source.media_type};base64,{source.data}"


def _call(block: ToolUseBlock) -> EarlierCall:
    arguments = msgspec.json.encode(block.input).decode()
    return EarlierCall(id=block.id, function=EarlierFunction(name=block.name, arguments=arguments))


def _tool(tool: CustomTool) -> Tool:
    function = Function(name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict)
    return Tool(type="function", function=function)


def _choice(asked: CountTokensRequest) -> Literal["none", "auto", "required"] | NamedTool | None:
    match asked.tool_choice:
        case ToolChoice(name=name):
            return NamedTool(type="function", function=FunctionName(name=name))
        case AnyChoice():
            return "required"
        case NoChoice():
            return "none"
        case AutoChoice():
            return "auto"
    return None
