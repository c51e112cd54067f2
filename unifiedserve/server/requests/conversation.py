"""Turn messages into the engine's: turns with placeholders, their media fetched, the template's options."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import msgspec

from unifiedserve.errors import NO_JSON, RequestError
from unifiedserve.messages.api import MediaInput
from unifiedserve.messages.media import MediaKind, MediaOptions
from unifiedserve.server.errors import refuse_unless
from unifiedserve.server.media.budget import RequestBudget
from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.media.frame_list import MOST_FRAMES, set_rate, video_of_images
from unifiedserve.server.requests.media_options import MediaFields, image_rate, media_options
from unifiedserve.server.requests.messages import (
    File,
    FilePart,
    FrameImage,
    ImagePart,
    ImageURL,
    Message,
    Part,
    QwenVideoPart,
    RefusalPart,
    TextPart,
    VideoPart,
    VideoURL,
)

# The decisions of apply_chat_template and the engine; a template is code, so clients bring none.
_RESERVED_TEMPLATE_KWARGS = {
    "add_generation_prompt",
    "chat_template",
    "continue_final_message",
    "conversation",
    "conversations",
    "documents",
    "max_length",
    "media",
    "messages",
    "padding",
    "return_assistant_tokens_mask",
    "return_dict",
    "return_tensors",
    "sanitize_control_tokens",
    "self",
    "tokenize",
    "tokenizer_kwargs",
    "tools",
    "truncation",
}
_MOST_MEDIA = 1000  # of a request
_TOO_MANY = f"A request has at most {_MOST_MEDIA} images and videos: send further ones in another request."
_LONG = 1000  # messages, their parts, calls and names in arguments that take long
_MOST_ARGUMENTS = 20_000  # names in the arguments of all calls of a request
_TEMPLATE_DEPTH = 32  # what walks these values recurses, and has a stack of its own already


class MediaReference(NamedTuple):
    """Refer to a medium before it is fetched, or to a video's frames. `param` is where the request has its URL."""

    kind: MediaKind
    url: "str | list[MediaReference]"
    param: str
    fps: float | None = None

    @property
    def named(self) -> tuple[Any, ...]:
        """Return what is alike in references to one medium."""
        return self.kind, self.url if isinstance(self.url, str) else tuple(frame.url for frame in self.url)


class Turn(Protocol):
    """Choose the end of the prompt: whether it begins an answer, or goes on with the last one."""

    add_generation_prompt: bool | None
    continue_final_message: bool | None


class Conversation(MediaFields, Turn, Protocol):
    """Choose how messages become a prompt."""

    chat_template_kwargs: dict[str, Any] | None


async def conversation(asked: Conversation, messages: list[Message], fetcher: MediaFetcher) -> dict[str, Any]:
    """Return the fields of a GenerateRequest that come of messages, their media fetched."""
    template = _template_kwargs(asked)
    options = media_options(asked)
    split = partial(_split_media, messages, _References(fetcher.kind_of, image_rate(asked)))
    turns, references = await asyncio.to_thread(split) if _takes_long(messages) else split()
    begin = time.monotonic()
    budget = fetcher.budget.of_request()
    try:
        media = await _fetch_all(references, options, fetcher, budget)
    except BaseException:  # whose frames may hold the budget until garbage is collected
        budget.close()
        raise
    fetched = (begin, time.monotonic()) if media else None
    return {"messages": turns, "media": media, "template": template, "fetched": fetched}


def _template_kwargs(asked: Conversation) -> dict[str, Any]:
    given = asked.chat_template_kwargs or {}
    if reserved := sorted(_RESERVED_TEMPLATE_KWARGS & given.keys()):
        raise RequestError(
            f"`chat_template_kwargs` must not contain `{reserved[0]}`.",
            param=f"chat_template_kwargs.{reserved[0]}",
        )
    refuse_unless(
        not _deeper_than(_TEMPLATE_DEPTH, given),
        "chat_template_kwargs",
        f"`chat_template_kwargs` is nested deeper than {_TEMPLATE_DEPTH} levels.",
    )
    return {**turn_kwargs(asked), **given}


def turn_kwargs(asked: Turn) -> dict[str, Any]:
    """Return the template's options for the end of the prompt; raise RequestError 400 if they contradict each other."""
    goes_on = bool(asked.continue_final_message)
    refuse_unless(
        not goes_on or not asked.add_generation_prompt,
        "continue_final_message",
        "`continue_final_message` contradicts `add_generation_prompt`: that would begin another message.",
    )
    if goes_on:
        return {"add_generation_prompt": False, "continue_final_message": True}
    return {"add_generation_prompt": asked.add_generation_prompt is not False}


def _deeper_than(levels: int, value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    return isinstance(value, list) and (levels == 0 or any(_deeper_than(levels - 1, item) for item in value))


def template_turn(number: int, message: Message) -> dict[str, Any]:
    """Return a message as templates know it, less a list of parts; `developer`, OpenAI's newer name, as `system`."""
    if message.content is None and message.role != "assistant":
        raise RequestError(f"`messages[{number}].content` is missing.", param=f"messages[{number}].content")
    turn: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": message.content if isinstance(message.content, str) else message.refusal or "",
    }
    if message.role == "assistant":
        turn |= _assistant_fields(message)
    elif message.role == "tool":
        given = {"tool_call_id": message.tool_call_id, "name": message.name}
        turn |= {key: value for key, value in given.items() if value is not None}
    return turn


def _assistant_fields(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if reasoning := message.reasoning_content or message.reasoning:
        fields["reasoning_content"] = reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments)},
            }
            for call in message.tool_calls
        ]
    return fields


def _arguments(text: str) -> dict[str, Any] | str:
    """Return a call's arguments parsed, as templates want them; their text if the answer was cut off within them."""
    try:
        value = msgspec.json.decode(text or "{}")
    except NO_JSON:
        return text
    return value if isinstance(value, dict) and not _deeper_than(_TEMPLATE_DEPTH, value) else text


def _takes_long(messages: list[Message]) -> bool:
    """Tell whether messages have so much in them that other requests would wait.

    Raises RequestError 400 for arguments of more names than are worth it: templates write each of them out.
    """
    calls = [call for message in messages for call in message.tool_calls or ()]
    names = sum(call.function.arguments.count(":") for call in calls)
    refuse_unless(
        names <= _MOST_ARGUMENTS,
        "messages",
        f"The arguments of tool calls have {names} colons together; at most {_MOST_ARGUMENTS} are allowed.",
    )
    parts = sum(len(message.content) for message in messages if isinstance(message.content, list))
    return names + len(calls) + parts + len(messages) > _LONG


def _split_media(messages: list[Message], found: "_References") -> tuple[list[dict[str, Any]], list[MediaReference]]:
    """Return the messages with a placeholder for each medium, and the media in order. Placeholders are bare."""
    references: list[MediaReference] = []
    turns: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        turn = template_turn(number, message)
        if isinstance(message.content, list):
            turn["content"] = []
            for piece in found.pieces(message.content, f"messages[{number}].content"):
                if isinstance(piece, str):
                    turn["content"].append({"type": "text", "text": piece})
                else:
                    refuse_unless(len(references) < _MOST_MEDIA, piece.param, _TOO_MANY)
                    references.append(piece)
                    turn["content"].append({"type": piece.kind})
        turns.append(turn)
    return turns, references


class _References(NamedTuple):
    """Find the media in the parts of messages. `kind_of` tells what a file is.

    With an `image_fps` images side by side are the frames of a video.
    """

    kind_of: Callable[[str, str | None], MediaKind]
    image_fps: float | None

    def pieces(self, content: list[Part], place: str) -> Iterator[str | MediaReference]:
        """Yield the texts and media of a message."""
        for is_image, run in groupby(enumerate(content), lambda item: isinstance(item[1], ImagePart)):
            pieces = [
                part.text if isinstance(part, TextPart | RefusalPart) else self._of(part, f"{place}[{position}]")
                for position, part in run
            ]
            frames = [piece for piece in pieces if isinstance(piece, MediaReference)]
            if is_image and self.image_fps is not None and len(frames) > 1:
                param = frames[0].param
                refuse_unless(len(frames) <= MOST_FRAMES, param, f"A video has at most {MOST_FRAMES} images.")
                yield MediaReference("video", frames, param, self.image_fps)
            else:
                yield from pieces

    def _of(self, part: ImagePart | VideoPart | QwenVideoPart | FilePart, param: str) -> MediaReference:
        match part:
            case FilePart(file=file):
                return self._file(file, f"{param}.file")
            case QwenVideoPart(video=video, fps=fps, sample_fps=sample_fps):
                same = None in (fps, sample_fps) or fps == sample_fps
                refuse_unless(same, f"{param}.sample_fps", "`fps` and `sample_fps` mean the same, but differ.")
                param += ".video"
                return MediaReference("video", self._frames(video, param), param, fps or sample_fps)
            case ImagePart(image_url=ImageURL(url=url)):
                return MediaReference("image", url, f"{param}.image_url.url")
            case VideoPart(video_url=VideoURL(url=video, fps=fps)):
                param += ".video_url.url"
                return MediaReference("video", self._frames(video, param), param, fps)
        kind = "image" if isinstance(part, ImagePart) else "video"
        param += f".{kind}_url"
        raise RequestError(f"This server does not keep media by uuid: send the {kind}'s URL.", param=param)

    def _frames(self, video: str | list[FrameImage], param: str) -> str | list[MediaReference]:
        """Return the URL of a video, or references to the images that it is."""
        if isinstance(video, str):
            return video
        return [
            MediaReference("image", frame, f"{param}[{number}]")
            if isinstance(frame, str)
            else self._of(frame, f"{param}[{number}]")
            for number, frame in enumerate(video)
        ]

    def _file(self, file: File, param: str) -> MediaReference:
        refuse_unless(
            (file.file_id is None) != (file.file_data is None),
            param,
            f"`{param}` needs either `file_id` or `file_data`.",
        )
        url = file.file_id or file.file_data or ""
        try:
            return MediaReference(self.kind_of(url, file.filename), url, param)
        except RequestError as error:
            error.param = error.param or param
            raise


async def _fetch_all(
    references: list[MediaReference],
    options: Mapping[MediaKind, MediaOptions],
    fetcher: MediaFetcher,
    budget: RequestBudget,
) -> list[MediaInput]:
    """Fetch all media at once, each once however often it is named; the first failure cancels the others."""
    first = {reference.named: reference for reference in reversed(references)}
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {
                named: group.create_task(_fetch(reference, options[reference.kind], fetcher, budget))
                for named, reference in reversed(first.items())
            }
    except* RequestError as errors:
        raise errors.exceptions[0] from None
    return [_as_named(tasks[reference.named].result(), reference) for reference in references]


async def _fetch(
    reference: MediaReference, wanted: MediaOptions, fetcher: MediaFetcher, budget: RequestBudget
) -> MediaInput:
    try:
        if isinstance(reference.url, str):
            return await fetcher.fetch(reference.kind, reference.url, wanted, budget)
        images = await _fetch_all(reference.url, {"image": MediaOptions()}, fetcher, budget)
        video = MediaInput(kind=reference.kind, options=wanted, held=budget)
        return await asyncio.to_thread(video_of_images, video, images, fetcher.max_bytes)
    except RequestError as error:
        error.param = error.param or reference.param
        raise


def _as_named(medium: MediaInput, reference: MediaReference) -> MediaInput:
    """Return a medium as one of its references has it."""
    medium = msgspec.structs.replace(medium, param=reference.param)
    if reference.fps is not None:
        set_rate(medium, reference.fps)
    return medium
