"""Take frames from a decoder whose tensors are on a GPU, in a process of its own; prints "the same" if they are those
of a decoder on the host.

gpu_decoder_process.py FILE [--stand-in]
"""

import sys
from typing import Any

import flashcodec.torch
import numpy as np
import torch
from flashcodec.reading import Allocator, Memory

import flashcodec


def memory(shape: tuple[int, ...]) -> Memory:
    tensor = torch.empty(shape, dtype=torch.uint8)
    return Memory(tensor, (tensor.data_ptr(), tensor.nbytes))


class StandIn(flashcodec.torch.VideoDecoder):
    """A decoder for the stand-in's GPU, whose memory is the host's."""

    def _allocator(self) -> Allocator:
        return memory


def check_same(found: Any, expected: Any, device: str) -> None:
    assert found.data.device.type == device
    np.testing.assert_array_equal(found.data.cpu().numpy(), expected.data)
    np.testing.assert_array_equal(np.asarray(found.pts_seconds), np.asarray(expected.pts_seconds))


def check(path: str, kind: Any, device: str, order: Any, on_error: Any) -> None:
    """Every way to frames gives those of the host, in the same order and shape."""
    options: dict[str, Any] = {"dimension_order": order, "on_error": on_error, "size": (90, 161)}
    with kind(path, device="cuda", **options) as decoder, flashcodec.VideoDecoder(path, **options) as reference:
        unknown = device == "cpu" and decoder.metadata.codec == "vp9"  # to the stand-in
        assert bool(decoder.cpu_fallback) == unknown, str(decoder.cpu_fallback)
        count = len(decoder)
        indices = [count - 1, 3, 17, 3, 20]
        check_same(decoder.get_frames_at(indices), reference.get_frames_at(indices), device)
        check_same(decoder.get_frame_at(9), reference.get_frame_at(9), device)
        check_same(decoder.get_frames_played_at([0.5, 0.1]), reference.get_frames_played_at([0.5, 0.1]), device)
        check_same(decoder.get_frames_in_range(5, 50, 4)[1:3], reference.get_frames_in_range(5, 50, 4)[1:3], device)
        np.testing.assert_array_equal(decoder[10:14].cpu().numpy(), reference[10:14])
        chunks = [chunk.data.cpu().numpy() for chunk in decoder.stream(range(0, count, 7))]
        np.testing.assert_array_equal(np.concatenate(chunks), reference.get_frames_at(range(0, count, 7)).data)
        for planes, expected in zip(decoder.get_yuv_frames_at([4]), reference.get_yuv_frames_at([4]), strict=True):
            np.testing.assert_array_equal(planes, expected)


def main() -> None:
    path, stand_in = sys.argv[1], "--stand-in" in sys.argv
    kind, device = (StandIn, "cpu") if stand_in else (flashcodec.torch.VideoDecoder, "cuda")
    for order, on_error in (("NCHW", "raise"), ("NHWC", "skip"), ("NCHW", "nearest")):
        check(path, kind, device, order, on_error)
    print("the same")


if __name__ == "__main__":
    main()
