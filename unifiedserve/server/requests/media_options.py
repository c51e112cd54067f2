"""Read options of images and videos: clients may write them in two places."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from msgspec import Meta

from unifiedserve.errors import RequestError
from unifiedserve.messages.media import ALL_FRAMES, MediaKind, MediaOptions, PromptError
from unifiedserve.messages.sampling_params import INT_LIMIT
from unifiedserve.server.requests.base import PositiveInt, Strict

V = TypeVar("V", int, float)

_VIDEO = "media_io_kwargs.video"
_PROCESSOR = "mm_processor_kwargs"


PositiveFloat = Annotated[float, Meta(gt=0, le=1e6)]
FrameCount = Annotated[int, Meta(ge=-1, le=INT_LIMIT, description="-1: every frame")]


MaxTTFT = Annotated[
    float,
    Meta(
        gt=0, le=1e9, description="Milliseconds to the first token; to meet them videos are looked at in fewer frames"
    ),
]


class VideoIO(Strict):
    fps: PositiveFloat | None = None
    num_frames: FrameCount | None = None
    max_frames: PositiveInt | None = None


class ImageIO(Strict):
    """Set options of images. With `fps`, images side by side in a message are the frames of one video of this rate."""

    fps: PositiveFloat | None = None


class MediaIO(Strict):
    image: ImageIO | None = None
    video: VideoIO | None = None


class PixelBounds(Strict):
    """Bound pixels in Qwen-VL processors' own spelling of min_pixels and max_pixels."""

    shortest_edge: PositiveInt | None = None
    longest_edge: PositiveInt | None = None


class ProcessorKwargs(Strict):
    """Set options of processors. Those that ask for what processors do anyway are accepted, too."""

    unsupported: ClassVar[Mapping[str, Collection[Any]]] = {
        "do_convert_rgb": (None, True),
        "do_normalize": (None, True),
        "do_rescale": (None, True),
        "do_resize": (None, True),
        "do_sample_frames": (None, True),
        "use_audio_in_video": (None, False),
    }

    fps: PositiveFloat | None = None
    num_frames: FrameCount | None = None
    min_pixels: PositiveInt | None = None
    max_pixels: PositiveInt | None = None
    size: PixelBounds | None = None


class MediaFields(Protocol):
    """Set a request's fields for its media."""

    media_io_kwargs: MediaIO | None
    mm_processor_kwargs: ProcessorKwargs | None


def media_options(asked: MediaFields) -> dict[MediaKind, MediaOptions]:
    """Return the options for each kind of media; raise RequestError 400 where the places contradict each other."""
    reading = (asked.media_io_kwargs and asked.media_io_kwargs.video) or VideoIO()
    processing = asked.mm_processor_kwargs or ProcessorKwargs()
    size = processing.size or PixelBounds()
    image = MediaOptions(
        min_pixels=_either("min_pixels", _PROCESSOR, processing.min_pixels, "size", size.shortest_edge),
        max_pixels=_either("max_pixels", _PROCESSOR, processing.max_pixels, "size", size.longest_edge),
    )
    fps = _either("fps", _VIDEO, reading.fps, _PROCESSOR, processing.fps)
    num_frames = _either("num_frames", _VIDEO, reading.num_frames, _PROCESSOR, processing.num_frames)
    video = MediaOptions(
        num_frames=None if fps is not None and num_frames == ALL_FRAMES else num_frames,
        fps=fps,
        max_frames=reading.max_frames,
        min_pixels=image.min_pixels,
        max_pixels=image.max_pixels,
    )
    _check(video, reading)
    return {"image": image, "video": video}


def image_rate(asked: MediaFields) -> float | None:
    """Return the frames a second of videos that are images side by side; None if those are no videos."""
    return asked.media_io_kwargs.image.fps if asked.media_io_kwargs and asked.media_io_kwargs.image else None


def _either(name: str, place: str, value: V | None, other_place: str, other: V | None) -> V | None:
    if value is not None and other is not None and value != other:
        raise RequestError(f"`{name}` is {value} by {place} and {other} by {other_place}.", param=f"{place}.{name}")
    return other if value is None else value


def _check(options: MediaOptions, reading: VideoIO) -> None:
    try:
        options.check("video")
    except PromptError as error:
        place = _PROCESSOR if getattr(reading, error.param or "", None) is None else _VIDEO
        raise RequestError(f"{error}.", param=f"{place}.{error.param}") from None
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
