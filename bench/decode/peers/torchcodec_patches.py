"""A file to the rows that Qwen2.5-VL's vision tower reads, by TorchCodec and transformers' fast video processor."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from peers import torchcodec, torchvision_operators
from peers.sharing import Frames, Indices

torchvision_operators.define()
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor  # noqa: E402

MAX_PIXELS = 50_176  # of a frame for the vision tower


def patches(path: str, indices: Indices, size: tuple[int, int], threads: int) -> npt.NDArray[np.float32]:
    return processed(torchcodec.frames, path, indices, size, threads)


def split(path: str, indices: Indices, size: tuple[int, int], threads: int) -> npt.NDArray[np.float32]:
    return processed(torchcodec.split, path, indices, size, threads)


def processed(
    frames: Frames, path: str, indices: Indices, size: tuple[int, int], threads: int
) -> npt.NDArray[np.float32]:
    """Return normalised patches float32 [rows, 1176]."""
    torch.set_num_threads(threads)
    return of_frames(torch.from_numpy(frames(path, indices, None, threads)).permute(0, 3, 1, 2)).numpy()  # type: ignore[no-any-return]


def of_frames(video: torch.Tensor) -> Any:
    """Return the patches of frames [n, 3, height, width], where these are."""
    limits = {"shortest_edge": 1, "longest_edge": MAX_PIXELS}
    processor = Qwen2VLVideoProcessor(size=limits, cap_pixels_per_frame=False)
    result = processor(videos=[video], do_sample_frames=False, return_tensors="pt")
    return result["pixel_values_videos"]
