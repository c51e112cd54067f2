"""Open the commands' video, and choose which of its frames are meant."""

from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from flashcodec.bitstream import Bitstream, Source, analyse_bitstream
from flashcodec.errors import DecodeError
from flashcodec.sampling import frames_to_sample

Indices = npt.NDArray[np.int64]

File = Annotated[str, typer.Argument(metavar="FILE", help="The video file", show_default=False)]
StreamIndex = Annotated[
    int | None,
    typer.Option("--stream", min=0, metavar="N", help="The number of the stream. Default: the best video stream"),
]
NumFrames = Annotated[
    int | None,
    typer.Option(
        "--frames", min=1, metavar="N", help="Take N frames at even distances, the first and the last included"
    ),
]
Fps = Annotated[float | None, typer.Option("--fps", metavar="F", help="Take F frames per second of video")]
IndexList = Annotated[
    str | None,
    typer.Option(
        "--indices", metavar="I,I,…", help="Take the frames with these indices; negative ones count from the end"
    ),
]
Snap = Annotated[bool, typer.Option("--snap", help="Take the nearest key frames instead: inexact, but much faster")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")]

DEFAULT_FRAMES = 64
_MOST_FRAMES = 1_000_000


def open_video(source: Source, stream_index: int | None) -> Bitstream:
    """Raise DecodeError as `analyse_bitstream`; a stream that is no video is a mistake in the command line."""
    try:
        return analyse_bitstream(source, stream_index)
    except DecodeError:  # a file without video is a ValueError, too
        raise
    except ValueError as error:
        raise typer.BadParameter(f"--stream: {error}") from error


def chosen_frames(
    video: Bitstream, frames: int | None, fps: float | None, indices: str | None, snap: bool = False
) -> Indices:
    """Return the frames that the options ask for. The default is 64 at even distances, or all of a shorter video."""
    chosen = _chosen(video, frames, fps, indices)
    return video.snap(chosen) if snap else chosen


def _chosen(video: Bitstream, frames: int | None, fps: float | None, indices: str | None) -> Indices:
    options = {"--frames": frames, "--fps": fps, "--indices": indices}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other")
    if indices is not None:
        return _listed(indices, video.num_frames)
    if fps is not None:
        return _one_per_interval(video, fps)
    return frames_to_sample(video, num_frames=frames or DEFAULT_FRAMES)


def _one_per_interval(video: Bitstream, fps: float) -> Indices:
    if video.metadata.duration_seconds * fps > _MOST_FRAMES:
        raise typer.BadParameter(f"--fps: {fps:g} gives more than {_MOST_FRAMES} frames of this video")
    try:
        return frames_to_sample(video, fps=fps)
    except ValueError as error:
        raise typer.BadParameter(f"--fps: {error}") from error


def _listed(text: str, total: int) -> Indices:
    try:
        listed = np.array([int(item) for item in text.split(",")], np.int64)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"--indices: expected numbers and commas, got {text!r}") from None
    bad = listed[(listed < -total) | (listed >= total)]
    if bad.size:
        raise typer.BadParameter(f"--indices: there is no frame {bad[0]}, the video has {total} frames")
    return np.where(listed < 0, listed + total, listed)
