"""The resize equals torch's antialiased bicubic on uint8, bit for bit."""

import numpy as np
import pytest
from flashcodec_clips import ClipMaker
from hypothesis import given, settings
from hypothesis import strategies as st

import flashcodec
from flashcodec import Bitstream, FlashCodec, RGBLayout, VideoDecoder

torch = pytest.importorskip("torch", reason="torch is the reference")

# 1 x 1 trips an assertion in torch.
SIDES = st.one_of(st.integers(2, 40), st.integers(2, 700), st.sampled_from([180, 320]))


@pytest.fixture(scope="module")
def stream(clip: ClipMaker) -> Bitstream:
    return flashcodec.analyse_bitstream(clip("h264_bframes.mp4"))


@settings(max_examples=60, deadline=None)
@given(height=SIDES, width=SIDES, channels_last=st.booleans())
def test_resize_equals_torchs(stream: Bitstream, height: int, width: int, channels_last: bool) -> None:
    native = torch.from_numpy(VideoDecoder(stream)[33:34])
    if channels_last:
        native = native.contiguous(memory_format=torch.channels_last)
    reference = torch.nn.functional.interpolate(native, (height, width), mode="bicubic", antialias=True)
    with FlashCodec(num_threads=1) as codec:
        codec.add_decoding_request(stream, [33], RGBLayout(height, width))
        output = codec.get_decoding_output(60)
    assert output is not None
    np.testing.assert_array_equal(output.data, reference.numpy())
