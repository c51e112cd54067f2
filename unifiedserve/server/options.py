"""The media options of a request, gathered from the two places where clients may write them."""

from typing import TypeVar

from unifiedserve.errors import RequestError
from unifiedserve.models.media import MediaKind, MediaOptions, PromptError
from unifiedserve.server.schema import Conversation, PixelBounds, ProcessorKwargs, VideoIO

V = TypeVar("V", int, float)

_VIDEO = "media_io_kwargs.video"
_PROCESSOR = "mm_processor_kwargs"


def media_options(chat: Conversation) -> dict[MediaKind, MediaOptions]:
    """Options for each kind of media; raises RequestError 400 where the places contradict each other."""
    reading = (chat.media_io_kwargs and chat.media_io_kwargs.video) or VideoIO()
    processing = chat.mm_processor_kwargs or ProcessorKwargs()
    size = processing.size or PixelBounds()
    image = MediaOptions(
        min_pixels=_either("min_pixels", _PROCESSOR, processing.min_pixels, "size", size.shortest_edge),
        max_pixels=_either("max_pixels", _PROCESSOR, processing.max_pixels, "size", size.longest_edge),
    )
    video = MediaOptions(
        num_frames=_either("num_frames", _VIDEO, reading.num_frames, _PROCESSOR, processing.num_frames),
        fps=_either("fps", _VIDEO, reading.fps, _PROCESSOR, processing.fps),
        max_frames=reading.max_frames,
        min_pixels=image.min_pixels,
        max_pixels=image.max_pixels,
    )
    _check(video)
    return {"image": image, "video": video}


def _either(name: str, place: str, value: V | None, other_place: str, other: V | None) -> V | None:
    if value is not None and other is not None and value != other:
        raise RequestError(f"`{name}` is {value} by {place} and {other} by {other_place}.", param=f"{place}.{name}")
    return other if value is None else value


def _check(options: MediaOptions) -> None:
    try:
        options.check("video")
    except PromptError as error:
        raise RequestError(f"{error}.", param=error.param) from None
    if options.max_frames is not None and (options.num_frames or 0) > options.max_frames:
        raise RequestError(
            f"`num_frames` is {options.num_frames}, but `max_frames` allows {options.max_frames}.",
            param=f"{_VIDEO}.num_frames",
        )
    if (options.min_pixels or 0) > (options.max_pixels or float("inf")):
        raise RequestError(
            f"`min_pixels` is {options.min_pixels}, but `max_pixels` is {options.max_pixels}.",
            param=f"{_PROCESSOR}.min_pixels",
        )
