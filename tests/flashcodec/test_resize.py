"""The resize equals torch's antialiased bicubic and bilinear on uint8, bit for bit; "area" is Pillow's BOX."""

from typing import Literal

import numpy as np
import pytest
from flashcodec_clips import ClipMaker
from hypothesis import given, settings
from hypothesis import strategies as st

import flashcodec
from flashcodec import Bitstream, FlashCodec, RGBLayout, VideoDecoder, _core

torch = pytest.importorskip("torch", reason="torch is the reference")

# 1 x 1 trips an assertion in torch.
SIDES = st.one_of(st.integers(2, 40), st.integers(2, 700), st.sampled_from([180, 320]))


@pytest.fixture(scope="module")
def stream(clip: ClipMaker) -> Bitstream:
    return flashcodec.analyse_bitstream(clip("h264_bframes.mp4"))


@settings(max_examples=60)
@given(
    height=SIDES,
    width=SIDES,
    channels_last=st.booleans(),
    interpolation=st.sampled_from(["bicubic", "bilinear"]),
)
def test_resize_equals_torchs(
    stream: Bitstream, height: int, width: int, channels_last: bool, interpolation: Literal["bicubic", "bilinear"]
) -> None:
    native = torch.from_numpy(VideoDecoder(stream)[33:34])
    if channels_last:
        native = native.contiguous(memory_format=torch.channels_last)
    reference = torch.nn.functional.interpolate(native, (height, width), mode=interpolation, antialias=True)
    with FlashCodec(num_threads=1) as codec:
        codec.add_decoding_request(stream, [33], RGBLayout(height, width, interpolation=interpolation))
        output = codec.get_decoding_output(60)
    assert output is not None
    np.testing.assert_array_equal(output.data, reference.numpy())


@settings(max_examples=60)
@given(
    source=st.tuples(st.integers(2, 90), st.integers(2, 90)), target=st.tuples(SIDES, SIDES), seed=st.integers(0, 99)
)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_resize_of_noise_equals_torchs(
    interpolation: Literal["bicubic", "bilinear"], source: tuple[int, int], target: tuple[int, int], seed: int
) -> None:
    rgb = np.random.default_rng(seed).integers(0, 2, (*source, 3), np.uint8) * 255
    native = torch.from_numpy(rgb).permute(2, 0, 1)[None]
    reference = torch.nn.functional.interpolate(native, target, mode=interpolation, antialias=True)
    layout = RGBLayout(*target, interpolation=interpolation)
    np.testing.assert_array_equal(
        _core.lay_out(rgb, layout.to_core()).reshape(layout.group_shape(1)), reference.numpy()
    )


@settings(max_examples=100)
@given(source=st.integers(1, 90), target=st.integers(1, 120), across=st.booleans())
def test_area_is_pillows_box(source: int, target: int, across: bool) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is the reference")
    other = 7
    samples = np.random.default_rng(source * target).integers(0, 256, (other, source), np.uint8)
    exact = np.asarray(image.fromarray(samples.astype(np.float32)).resize((target, other), image.Resampling.BOX))
    gray = np.repeat(samples[..., None], 3, 2)
    size = (other, target) if across else (target, other)
    layout = RGBLayout(*size, "NHWC", "area").to_core()
    ours = _core.lay_out(np.ascontiguousarray(gray if across else gray.transpose(1, 0, 2)), layout).reshape(*size, 3)
    for channel in range(3):
        result = ours[..., channel] if across else ours[..., channel].T
        assert np.abs(result - exact).max() <= 0.51  # rounded; the weights have 16 bits


def test_area_by_whole_factors_is_the_mean() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (48, 96, 3), np.uint8)
    layout = RGBLayout(12, 12, "NHWC", "area")
    ours = _core.lay_out(rgb, layout.to_core()).reshape(layout.group_shape(1))[0]
    mean = rgb.reshape(12, 4, 12, 8, 3).mean((1, 3))
    assert np.abs(ours - mean).max() <= 1.0  # two roundings
