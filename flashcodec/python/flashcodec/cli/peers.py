"""The decoders that `flashcodec bench` compares: each reads the frames of a list from a file at its best setting.

A reader returns uint8 [n, height, width, 3] in RGB. It runs in a process of its own (`bench.Contestant`).
"""

import bisect
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flashcodec.video_decoder import VideoDecoder

Frames = npt.NDArray[np.uint8]
Reader = Callable[[str, Sequence[int]], Frames]


class Peer(NamedTuple):
    """`module` must be importable for it to take part."""

    name: str
    module: str
    read: Reader


def flashcodec(path: str, indices: Sequence[int]) -> Frames:
    return VideoDecoder(path, dimension_order="NHWC").get_frames_at(list(indices)).data


def torchcodec(path: str, indices: Sequence[int]) -> Frames:
    return _torchcodec(path, indices, threads=0)


def torchcodec_split(path: str, indices: Sequence[int]) -> Frames:
    return _split(lambda part: _torchcodec(path, part, threads=1), indices)


def pyav(path: str, indices: Sequence[int]) -> Frames:
    return _pyav(path, indices, threads=0)


def pyav_split(path: str, indices: Sequence[int]) -> Frames:
    return _split(lambda part: _pyav(path, part, threads=1), indices)


def decord(path: str, indices: Sequence[int]) -> Frames:
    from decord import VideoReader, cpu

    frames: Frames = VideoReader(path, ctx=cpu(0), num_threads=0).get_batch(list(indices)).asnumpy()
    return frames


def opencv(path: str, indices: Sequence[int]) -> Frames:
    """Grabs every frame up to the last, converts those wanted."""
    import cv2

    video = cv2.VideoCapture(path)
    wanted, found = set(indices), {}
    for index in range(max(wanted) + 1):
        if not video.grab():
            raise RuntimeError(f"ends at frame {index}")
        if index in wanted:
            found[index] = cv2.cvtColor(video.retrieve()[1], cv2.COLOR_BGR2RGB)
    return np.stack([found[index] for index in indices])


PEERS = (
    Peer("TorchCodec", "torchcodec", torchcodec),
    Peer("TorchCodec, split", "torchcodec", torchcodec_split),
    Peer("PyAV", "av", pyav),
    Peer("PyAV, split", "av", pyav_split),
    Peer("decord", "decord", decord),
    Peer("OpenCV", "cv2", opencv),
)


def present() -> list[Peer]:
    return [peer for peer in PEERS if find_spec(peer.module) is not None]


def _split(read: Callable[[Sequence[int]], Frames], indices: Sequence[int]) -> Frames:
    """A part of the list for each core, each with a single-threaded decoder: faster than FFmpeg's own threads."""
    cores = len(os.sched_getaffinity(0))
    parts = [part.tolist() for part in np.array_split(np.asarray(indices), cores) if part.size]
    with ThreadPoolExecutor(cores) as pool:
        return np.concatenate(list(pool.map(read, parts)))


def _torchcodec(path: str, indices: Sequence[int], threads: int) -> Frames:
    decoders: Any = import_module("torchcodec.decoders")
    decoder = decoders.VideoDecoder(path, dimension_order="NHWC", num_ffmpeg_threads=threads)
    frames: Frames = decoder.get_frames_at(list(indices)).data.numpy()
    return frames


def _pyav(path: str, indices: Sequence[int], threads: int) -> Frames:
    """Seeks wherever a key frame lies between the last frame taken and the next one wanted."""
    import av

    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_type = "AUTO"
        stream.codec_context.thread_count = threads
        packets = [(packet.pts, packet.is_keyframe) for packet in container.demux(stream) if packet.pts is not None]
        times = sorted(pts for pts, _ in packets)
        keys = sorted(pts for pts, key in packets if key)
        shown, frames, found = None, iter(()), {}
        for index in sorted(set(indices)):
            key = keys[max(0, bisect.bisect_right(keys, times[index]) - 1)]
            if shown is None or key > shown:
                container.seek(key, stream=stream)
                frames = container.decode(stream)
            frame = _frame_at(frames, times[index])
            shown, found[index] = frame.pts, frame.to_ndarray(format="rgb24")
    return np.stack([found[index] for index in indices])


def _frame_at(frames: Any, pts: int) -> Any:
    for frame in frames:
        if frame.pts is not None and frame.pts >= pts:
            return frame
    raise RuntimeError("ends before the frames wanted")
