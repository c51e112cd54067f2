"""Read by PyAV as an expert does: times of all frames from the packets, a seek only where it saves decoding."""

from collections.abc import Iterator

import av
import numpy as np
import numpy.typing as npt
from av.container import InputContainer

from .sharing import Indices, Pixels, Size, shared


def frames(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read with FFmpeg's own threads."""
    with av.open(path) as container:
        times, keys = _timeline(container)
        wanted, places = np.unique(times[indices], return_inverse=True)
        context = container.streams.video[0].codec_context
        context.thread_count = threads
        context.thread_type = "AUTO" if threads > 1 else "NONE"
        height, width = size or (context.height, context.width)
        pictures = np.empty((len(wanted), height, width, 3), np.uint8)
        for place, frame in enumerate(_shown_at(container, wanted, keys)):
            picture = frame.reformat(width, height, "rgb24", interpolation=av.video.reformatter.Interpolation.BILINEAR)
            pictures[place] = picture.to_ndarray()
        return pictures if np.array_equal(places, np.arange(len(wanted))) else pictures[places]


def split(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read with a single-threaded decoder for each of `threads` shares of the indices."""
    return shared(frames, path, indices, size, threads)


def opened(path: str, indices: Indices, size: Size, threads: int) -> npt.NDArray[np.int64]:
    """Return the times of all frames, as `frames` finds them."""
    with av.open(path) as container:
        return _timeline(container)[0]


def _timeline(container: InputContainer) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the times of all frames in order, and those of the key frames."""
    packets = ((packet.pts, packet.is_keyframe) for packet in container.demux(video=0) if packet.pts is not None)
    times, are_keys = (np.array(column) for column in zip(*packets, strict=True))
    return np.sort(times), np.sort(times[are_keys])


def _shown_at(
    container: InputContainer, wanted: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]
) -> Iterator[av.VideoFrame]:
    """Yield the frames of these times, which ascend; raise EOFError if there is one too few."""
    stream = container.streams.video[0]
    decoding: Iterator[av.VideoFrame] = iter(())
    position: int | None = None
    for time in wanted.tolist():
        key = int(keys[max(0, np.searchsorted(keys, time, side="right") - 1)])
        if position is None or key > position:
            container.seek(time, stream=stream)
            decoding = container.decode(stream)
        for frame in decoding:
            position = frame.pts
            if frame.pts is not None and frame.pts >= time:
                yield frame
                break
        else:
            raise EOFError("ends before the frames wanted")
