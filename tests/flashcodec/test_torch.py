"""flashcodec.torch: tensors, TorchCodec's names, and no copies."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from flashcodec_clips import ClipMaker

import flashcodec

torch = pytest.importorskip("torch")

from flashcodec.torch import Frame, FrameBatch, VideoDecoder, clips_at_random_indices  # noqa: E402


def test_everything_is_a_tensor(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"))
    assert decoder[3].dtype == decoder[3:5].dtype == torch.uint8
    frame = decoder.get_frame_played_at(1.0)
    assert isinstance(frame, Frame)
    assert isinstance(frame.data, torch.Tensor)
    batches = [
        decoder.get_frames_at([1, 2]),
        decoder.get_frames_in_range(0, 2),
        decoder.get_frames_played_at([0.1, 0.5]),
        decoder.get_frames_played_in_range(0, 0.08),
        decoder.get_all_frames(fps=1 / 3),
        next(decoder.stream([5, 5])),
        clips_at_random_indices(decoder, num_clips=2),
    ]
    for batch in batches:
        assert isinstance(batch, FrameBatch)
        assert batch.pts_seconds.dtype == batch.duration_seconds.dtype == torch.float64
        assert batch.indices is not None
        assert batch.indices.dtype == torch.int64
        assert batch.indices.shape == batch.pts_seconds.shape
        assert isinstance(batch[0], FrameBatch)


def test_tensors_are_the_arrays(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    array = flashcodec.VideoDecoder(path).get_all_frames()
    tensor = VideoDecoder(path).get_all_frames()
    np.testing.assert_array_equal(tensor.data.numpy(), array.data)
    assert tensor.data.stride() == array.data.strides
    assert tensor.data.permute(0, 2, 3, 1).is_contiguous()
    assert tensor.data.is_contiguous(memory_format=torch.channels_last)


def test_a_source_tensor_is_not_copied(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    source = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    decoder = VideoDecoder(source)
    expected = VideoDecoder(path)[100]
    assert torch.equal(decoder[100], expected)
    del source
    assert torch.equal(decoder[100], expected)


def test_the_default_device_counts(clip: ClipMaker) -> None:
    with torch.device("meta"), pytest.raises(ValueError, match="device"):
        VideoDecoder(clip("h264_bframes.mp4"))
    with torch.device("meta"):
        assert VideoDecoder(clip("h264_bframes.mp4"), device="cpu")[0].device.type == "cpu"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"transforms": [object()]}, "Unsupported transform"),
    ({"device": "cuda:x"}, "cuda:N"),
    ({"num_ffmpeg_threads": -1}, "negative"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=lambda part: part if isinstance(part, str) else next(iter(part))
)
def test_what_is_not_supported_is_said(clip: ClipMaker, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VideoDecoder(clip("h264_bframes.mp4"), **arguments)


def test_options_of_our_own(clip: ClipMaker) -> None:
    data = clip("h264_faststart.mp4").read_bytes()
    batch = VideoDecoder(data[: len(data) // 2], on_error="nearest", size=32).get_frames_at([0, 149])
    assert batch.data.shape == (2, 3, 32, 56)
    assert list(batch.damaged) == [149]
    assert batch.indices is not None
    assert batch.indices.tolist() == [0, 0]


def test_flashcodec_alone_needs_no_torch() -> None:
    script = "import sys, flashcodec; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
