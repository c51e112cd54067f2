"""Define messages of a conversation, with texts, images and videos, and calls of tools."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from unifiedserve.server.media.file_store import FILE_ID
from unifiedserve.server.media.frame_list import MOST_FRAMES
from unifiedserve.server.requests.base import Strict

FileId = Annotated[
    str,
    Meta(
        pattern=f"^{FILE_ID}",
        description=f"the id of an uploaded file, which begins with {FILE_ID} (see POST /v1/files)",
    ),
]


class ImageURL(Strict):
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


Rate = Annotated[
    float,
    Meta(
        gt=0,
        le=1e6,
        description="Frames a second: the rate of a list of images; of a whole video, how many are looked at",
    ),
]


class ImagePart(Strict, tag_field="type", tag="image_url"):
    image_url: ImageURL | None
    uuid: str | None = None


FrameImage = str | ImagePart
Frames = Annotated[list[FrameImage], Meta(min_length=1, max_length=MOST_FRAMES, description="Images, or their URLs")]


class VideoURL(Strict):
    url: str | Frames
    fps: Rate | None = None


class TextPart(Strict, tag_field="type", tag="text"):
    text: str


class VideoPart(Strict, tag_field="type", tag="video_url"):
    video_url: VideoURL | None
    uuid: str | None = None


class RefusalPart(Strict, tag_field="type", tag="refusal"):
    """Hold a refusal in an earlier answer."""

    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class QwenVideoPart(Strict, tag_field="type", tag="video"):
    """Hold a video as Qwen's utilities write it."""

    video: str | Frames
    fps: Rate | None = None
    sample_fps: Rate | None = None


class File(Strict):
    """Name an image or a video: by an uploaded file's id or as a `data:` URL."""

    file_id: FileId | None = None
    file_data: str | None = None
    filename: str | None = None


class FilePart(Strict, tag_field="type", tag="file"):
    """Hold a medium whose type tells what it is, as OpenAI's clients send files."""

    file: File


Part = TextPart | RefusalPart | ImagePart | VideoPart | QwenVideoPart | FilePart


def text_or_parts(parts: list[Part]) -> str | list[Part]:
    """Return one text if there are no media among the parts."""
    texts = [part.text for part in parts if isinstance(part, TextPart | RefusalPart)]
    return "".join(texts) if len(texts) == len(parts) else parts


class EarlierFunction(Strict):
    """Name a called function.

    `arguments` is JSON text, or its beginning if the answer was cut off; clients may add other fields.
    """

    name: str
    arguments: str
    parsed_arguments: Any = None


class EarlierCall(Strict):
    """Hold a call of an earlier answer. `index` is from a stream."""

    id: str
    function: EarlierFunction
    type: Literal["function"] | None = None
    index: int | None = None


class Message(Strict):
    """Hold a turn. The last fields are those that clients send back with an earlier answer."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[EarlierCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    parsed: Any = None
    audio: None = None
    function_call: None = None


Messages = Annotated[list[Message], Meta(min_length=1)]
