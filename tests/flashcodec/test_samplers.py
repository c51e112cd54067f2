"""The samplers give TorchCodec's clips: the same calls on both, and random ones from the same numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flashcodec.samplers.by_index import evenly_spaced
from flashcodec_clips import ClipMaker
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcodec import FrameBatch, VideoDecoder, samplers

torch = pytest.importorskip("torch")
torchcodec = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")
reference = pytest.importorskip("torchcodec.samplers")

import flashcodec.torch  # noqa: E402

NAMES = ["h264_bframes.mp4", "h264_vfr.mp4", "h264_edit_list.mp4"]


@pytest.fixture(scope="module", params=NAMES)
def pair(request: pytest.FixtureRequest, clip: ClipMaker) -> tuple[VideoDecoder, Any]:
    path = clip(request.param)
    return VideoDecoder(path, size=16), torchcodec.VideoDecoder(path)


def check_same(ours: Any, theirs: Any) -> None:
    """Times tell the frames: that frames of the same time are the same is tested elsewhere."""
    assert ours.data.shape[:2] == tuple(theirs.data.shape[:2])
    np.testing.assert_array_equal(ours.pts_seconds, theirs.pts_seconds)
    np.testing.assert_allclose(ours.duration_seconds, theirs.duration_seconds, rtol=1e-14)


def same_or_same_error(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    try:
        expected = theirs()
    except (ValueError, IndexError) as error:
        with pytest.raises(type(error)):
            ours()
        return
    check_same(ours(), expected)


POLICIES = st.sampled_from(["repeat_last", "wrap", "error"])
BY_INDEX = st.fixed_dictionaries(
    {
        "num_clips": st.integers(-1, 6),
        "num_frames_per_clip": st.integers(-1, 5),
        "num_indices_between_frames": st.one_of(st.integers(-1, 4), st.just(60)),
        "sampling_range_start": st.integers(-160, 160),
        "sampling_range_end": st.one_of(st.none(), st.integers(-160, 200)),
        "policy": POLICIES,
    }
)
BY_TIME = st.fixed_dictionaries(
    {
        "num_frames_per_clip": st.integers(-1, 5),
        "seconds_between_frames": st.one_of(st.none(), st.sampled_from([-0.1, 0, 0.04, 0.1, 0.5, 3.0])),
        "sampling_range_start": st.one_of(st.none(), st.sampled_from([-1, 0.0, 0.2, 1.0, 2.39]), st.floats(0, 7)),
        "sampling_range_end": st.one_of(st.none(), st.sampled_from([-1, 0.0, 0.24, 1.0, 2.4, 99]), st.floats(0, 7)),
        "policy": POLICIES,
    }
)


@settings(max_examples=60)
@given(arguments=BY_INDEX)
def test_clips_at_regular_indices(pair: tuple[VideoDecoder, Any], arguments: dict[str, Any]) -> None:
    ours, theirs = pair
    same_or_same_error(
        lambda: samplers.clips_at_regular_indices(ours, **arguments),
        lambda: reference.clips_at_regular_indices(theirs, **arguments),
    )


@settings(max_examples=60)
@given(arguments=BY_TIME, between=st.sampled_from([-1, 0, 0.125, 0.3125, 0.75]))
def test_clips_at_regular_timestamps(pair: tuple[VideoDecoder, Any], arguments: dict[str, Any], between: float) -> None:
    """At multiples of 1/16 s: the last bit of torch.arange's others depends on the processor."""
    ours, theirs = pair
    same_or_same_error(
        lambda: samplers.clips_at_regular_timestamps(ours, seconds_between_clip_starts=between, **arguments),
        lambda: reference.clips_at_regular_timestamps(theirs, seconds_between_clip_starts=between, **arguments),
    )


def seeded(seed: int, call: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    def run() -> Any:
        torch.manual_seed(seed)
        return call(*arguments, **options)

    return run


@settings(max_examples=40)
@given(arguments=BY_INDEX, seed=st.integers(0, 1000))
def test_clips_at_random_indices(pair: tuple[VideoDecoder, Any], arguments: dict[str, Any], seed: int) -> None:
    ours, theirs = pair
    same_or_same_error(
        seeded(seed, flashcodec.torch.clips_at_random_indices, ours, **arguments),
        seeded(seed, reference.clips_at_random_indices, theirs, **arguments),
    )


@settings(max_examples=40)
@given(arguments=BY_TIME, num_clips=st.integers(-1, 5), seed=st.integers(0, 1000))
def test_clips_at_random_timestamps(
    pair: tuple[VideoDecoder, Any], arguments: dict[str, Any], num_clips: int, seed: int
) -> None:
    ours, theirs = pair
    same_or_same_error(
        seeded(seed, flashcodec.torch.clips_at_random_timestamps, ours, num_clips=num_clips, **arguments),
        seeded(seed, reference.clips_at_random_timestamps, theirs, num_clips=num_clips, **arguments),
    )


@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_clips_are_torchcodecs_pixels(clip: ClipMaker, order: Any) -> None:
    """Also when TorchCodec's own samplers take them from our decoder."""
    path = clip("h264_bframes.mp4")
    theirs = torchcodec.VideoDecoder(path, dimension_order=order)
    ours = flashcodec.torch.VideoDecoder(path, dimension_order=order)
    arguments = {"num_clips": 3, "num_frames_per_clip": 4, "num_indices_between_frames": 7}
    expected = reference.clips_at_regular_indices(theirs, **arguments)
    for clips in (
        flashcodec.torch.clips_at_regular_indices(ours, **arguments),
        reference.clips_at_regular_indices(ours, **arguments),
    ):
        check_same(clips, expected)
        assert torch.equal(clips.data, expected.data)
        assert clips.data.stride() == expected.data.stride()
    check_same(
        reference.clips_at_regular_timestamps(ours, seconds_between_clip_starts=0.7),
        reference.clips_at_regular_timestamps(theirs, seconds_between_clip_starts=0.7),
    )


@given(first=st.integers(0, 10**6), length=st.integers(0, 10**5), count=st.integers(1, 300))
def test_even_spacing_is_torchs(first: int, length: int, count: int) -> None:
    expected = torch.linspace(first, first + length, steps=count, dtype=torch.int)
    assert evenly_spaced(first, first + length, count).tolist() == expected.tolist()


def test_a_generator_decides_about_random_clips(pair: tuple[VideoDecoder, Any]) -> None:
    decoder, _ = pair
    for sampler in (samplers.clips_at_random_indices, samplers.clips_at_random_timestamps):
        first, again, other = (
            sampler(decoder, num_clips=8, num_frames_per_clip=2, rng=np.random.default_rng(seed)).pts_seconds
            for seed in (1, 1, 2)
        )
        assert (first == again).all()
        assert (first != other).any()


def test_random_starts_are_the_whole_range_and_no_more(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"), size=16)
    rng = np.random.default_rng(0)
    clips = samplers.clips_at_random_indices(
        decoder, num_clips=600, num_frames_per_clip=3, sampling_range_start=100, sampling_range_end=120, rng=rng
    )
    assert clips.indices is not None
    starts, counts = np.unique(clips.indices[:, 0], return_counts=True)
    assert starts.tolist() == list(range(100, 120))
    assert (np.abs(counts - 30) < 30).all()  # five standard deviations
    np.testing.assert_array_equal(clips.indices - clips.indices[:, :1], np.tile(np.arange(3), (600, 1)))
    whole = samplers.clips_at_random_indices(decoder, num_clips=3000, num_frames_per_clip=10, rng=rng)
    assert whole.indices is not None
    assert (whole.indices.min(), whole.indices.max()) == (0, 149)
    assert np.unique(whole.indices[:, 0]).tolist() == list(range(141))
    timed = samplers.clips_at_random_timestamps(
        decoder, num_clips=600, sampling_range_start=4.0, sampling_range_end=4.8, rng=rng
    )
    assert timed.indices is not None
    assert np.unique(timed.indices).tolist() == list(range(100, 120))


class Recording(VideoDecoder):
    """Notes what is asked for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[int] = []

    def get_frames_at(self, indices: Any, *, progress: Any = None) -> FrameBatch:
        self.asked.append(len(indices))
        return super().get_frames_at(indices, progress=progress)


def test_all_clips_are_one_request_and_no_copy(clip: ClipMaker) -> None:
    decoder = Recording(clip("h264_bframes.mp4"))
    clips = samplers.clips_at_regular_indices(decoder, num_clips=5, num_frames_per_clip=4)
    assert decoder.asked == [20]
    assert clips.data.shape == (5, 4, 3, 180, 320)
    assert clips.data.strides[:2] == (4 * 180 * 320 * 3, 180 * 320 * 3)
    assert clips.data.base is not None
    assert len(clips) == 5
    assert clips[1].data.shape == (4, 3, 180, 320)


def test_clips_need_all_frames(clip: ClipMaker) -> None:
    with pytest.raises(ValueError, match="on_error"):
        samplers.clips_at_regular_indices(VideoDecoder(clip("h264_bframes.mp4"), on_error="skip"))
