"""Read videos that come as images, one a frame. They are lists of URLs, or one data: URL as vLLM has it."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import MediaInput
from unifiedserve.messages.media import ALL_FRAMES

MOST_FRAMES = 4096  # of a video that is images
FRAME_TYPES = ("video/jpeg", "video/png", "video/webp")  # of data: URLs
_USUAL_RATE = 2.0  # frames a second, as Qwen's utilities assume


def video_of_images(video: MediaInput, images: Sequence[MediaInput], most_bytes: int) -> MediaInput:
    """Return a video with these images; raise RequestError 400 if they are too large together."""
    frames = [Path(image.path).read_bytes() if image.path else image.data or b"" for image in images]
    if sum(map(len, frames)) > most_bytes:
        raise RequestError(
            f"The frames of a video are larger than {most_bytes} bytes together (see --max-media-mib).",
            code="invalid_media_url",
        )
    return video_of_frames(video, frames)


def video_of_frames(video: MediaInput, frames: Sequence[bytes | bytearray]) -> MediaInput:
    """Return a video with these frames. All are looked at, unless its options say which."""
    options = video.options
    if options.num_frames is None and options.fps is None:
        options = msgspec.structs.replace(options, num_frames=ALL_FRAMES)
    sizes = [len(frame) for frame in frames]
    return msgspec.structs.replace(video, data=b"".join(frames), options=options, frames=sizes, fps=_USUAL_RATE)


def set_rate(video: MediaInput, fps: float) -> None:
    """Set the rate of frames that are images; else how many are looked at in a second."""
    if video.frames:
        video.fps = fps
    else:
        video.options = msgspec.structs.replace(video.options, fps=fps, num_frames=None)
