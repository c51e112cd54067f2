"""Frames of float32: what FFmpeg makes of 16 bits a channel, from 0 to 1."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flashcodec_clips import ClipMaker, run_ffmpeg

torch = pytest.importorskip("torch", reason="frames are its tensors")

from flashcodec.torch import CenterCrop, Resize, VideoDecoder  # noqa: E402

NAMES = ["h264_bframes.mp4", "h264_10bit_444.mp4", "vp9_10bit.webm", "rotated.mp4"]


def rgb48(path: Path, decoder: Any, count: int) -> npt.NDArray[np.float32]:
    """Return FFmpeg's first frames, [n, height, width, 3] of 0 to 1, turned after they are RGB."""
    turns = round((decoder.metadata.rotation or 0) / 90) % 4
    height, width = decoder.metadata.height, decoder.metadata.width
    size = (width, height) if turns % 2 else (height, width)
    raw = run_ffmpeg(
        *["-noautorotate", "-i", str(path), "-frames:v", str(count), "-vf", "format=rgb48"],
        *["-f", "rawvideo", "-pix_fmt", "rgb48", "-"],
    )
    frames = np.frombuffer(raw, np.uint16).reshape(count, *size, 3)
    return np.rot90(frames, turns, (1, 2)).astype(np.float32) / np.float32(65535)


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_ffmpegs_rgb48(clip: ClipMaker, name: str) -> None:
    decoder = VideoDecoder(clip(name), output_dtype=torch.float32, dimension_order="NHWC")
    expected = rgb48(clip(name), decoder, 9)
    batch = decoder.get_frames_at([8, 0, 3])
    assert batch.data.dtype == decoder[5].dtype == torch.float32
    np.testing.assert_array_equal(batch.data.numpy(), expected[[8, 0, 3]])
    np.testing.assert_array_equal(decoder.get_frame_at(5).data.numpy(), expected[5])
    np.testing.assert_array_equal(next(decoder.stream([2])).data.numpy(), expected[2:3])


@pytest.mark.parametrize("name", NAMES)
def test_auto_is_float32_where_samples_have_more_than_8_bits(clip: ClipMaker, name: str) -> None:
    expected = torch.float32 if "10bit" in name else torch.uint8
    decoder = VideoDecoder(clip(name), output_dtype="auto")
    assert decoder[0].dtype == expected
    assert torch.equal(pickle.loads(pickle.dumps(decoder))[3], decoder[3])


def test_transforms_of_float32(clip: ClipMaker) -> None:
    path = clip("h264_10bit_444.mp4")
    whole = VideoDecoder(path, output_dtype=torch.float32).get_frames_at([4]).data
    ours = VideoDecoder(path, output_dtype=torch.float32, transforms=[CenterCrop((100, 80)), Resize((30, 40))])
    cropped = whole[:, :, 10:110, 40:120]
    expected = torch.nn.functional.interpolate(cropped, (30, 40), mode="bilinear", antialias=True)
    assert torch.equal(ours.get_frames_at([4]).data, expected)
    small = VideoDecoder(path, output_dtype=torch.float32, size=(30, 40)).get_frames_at([4]).data
    assert torch.equal(small, torch.nn.functional.interpolate(whole, (30, 40), mode="bicubic", antialias=True))
    with pytest.raises(ValueError, match="bicubic"):
        VideoDecoder(path, output_dtype=torch.float32, size=30, interpolation="area")


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, "float32", None], ids=str)
def test_other_dtypes_are_refused(clip: ClipMaker, dtype: Any) -> None:
    with pytest.raises(ValueError, match="output_dtype"):
        VideoDecoder(clip("rotated.mp4"), output_dtype=dtype)
