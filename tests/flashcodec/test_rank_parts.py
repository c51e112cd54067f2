"""Frames divided among ranks: whole temporal patches, balanced GOPs, and together what one rank decodes."""

import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from flashcodec.rank_parts import Adjustment, RankPart, divide_among_ranks
from flashcodec_clips import FFMPEG, ClipMaker, run_ffmpeg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flashcodec
from flashcodec import Bitstream, FlashCodec, PatchLayout

ADJUSTMENTS = st.sampled_from(["increase", "decrease"])
GOP_SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def layout(patch: int) -> PatchLayout:
    return PatchLayout(28, 28, patch_size=14, temporal_patch_size=patch, merge_size=2)


def starts_of(sizes: list[int]) -> npt.NDArray[np.int64]:
    return np.cumsum([0, *sizes[:-1]])


def decoded(codec: FlashCodec, stream: Bitstream, frames: npt.NDArray[np.int64], patch: int) -> list[bytes]:
    """Decode frames and return their groups in order."""
    request = codec.add_decoding_request(stream, frames, layout(patch))
    groups: dict[int, bytes] = {}
    done = False
    while not done:
        output = codec.get_decoding_output(60.0)
        assert output is not None
        assert output.request == request
        assert output.data is not None, output.error
        groups[output.first_group] = output.data.tobytes()
        done = output.done
    return [groups[number] for number in sorted(groups)]


def check_ranks_decode_the_same(
    codec: FlashCodec, stream: Bitstream, frames: npt.NDArray[np.int64], parts: tuple[RankPart, ...], patch: int
) -> None:
    ranks = [decoded(codec, stream, frames[part.first : part.last], patch) for part in parts if part.last > part.first]
    assert [group for rank in ranks for group in rank] == decoded(codec, stream, frames, patch)


@given(sizes=GOP_SIZES, data=st.data(), ranks=st.integers(1, 9), patch=st.integers(1, 5), adjust=ADJUSTMENTS)
def test_ranks_partition_the_list_into_whole_patches(
    sizes: list[int], data: st.DataObject, ranks: int, patch: int, adjust: Adjustment
) -> None:
    frames = np.array(data.draw(st.lists(st.integers(0, sum(sizes) - 1), max_size=60)), np.int64)
    parts = divide_among_ranks(frames, starts_of(sizes), ranks, patch, adjust)
    assert len(parts) == ranks
    assert [part.last for part in parts[:-1]] == [part.first for part in parts[1:]]
    assert (parts[0].first, parts[-1].last) == (0, len(frames))
    filled = [part for part in parts if part.last > part.first]
    assert all((part.last - part.first) % patch == 0 for part in filled[:-1])


@given(sizes=GOP_SIZES, ranks=st.integers(1, 4))
def test_no_division_of_whole_gops_is_done_sooner(sizes: list[int], ranks: int) -> None:
    """Compare with the best division, found by dynamic programming."""
    parts = divide_among_ranks(np.arange(sum(sizes)), starts_of(sizes), ranks)
    before = np.cumsum([0, *sizes]).tolist()
    best = [0, *[10**9] * len(sizes)]  # of the first n GOPs among the ranks so far
    for _ in range(ranks):
        best = [min(max(best[cut], before[n] - before[cut]) for cut in range(n + 1)) for n in range(len(before))]
    assert max(part.frames_decoded for part in parts) == best[-1]


def test_taking_frames_costs_less_than_leaving_them() -> None:
    """Two GOPs of 17 frames each, as in the paper's figure 7: their sampled frames are odd in number."""
    frames, starts = np.array([0, 4, 9, 19, 25, 33]), np.array([0, 17])
    increase = divide_among_ranks(frames, starts, 2, 2, "increase")
    decrease = divide_among_ranks(frames, starts, 2, 2, "decrease")
    assert increase == (RankPart(0, 4, 10 + 3), RankPart(4, 6, 17))
    assert decrease == (RankPart(0, 2, 5), RankPart(2, 6, 10 + 17))


@pytest.mark.parametrize(("ranks", "patch", "adjust"), [(0, 1, "increase"), (1, 0, "increase"), (1, 1, "least")])
def test_wrong_arguments(ranks: int, patch: int, adjust: Adjustment) -> None:
    with pytest.raises(ValueError, match="must be"):
        divide_among_ranks(np.arange(3), np.array([0]), ranks, patch, adjust)


@pytest.mark.parametrize("name", ["h264_bframes.mp4", "h264_opengop.mp4", "hevc_opengop.mp4", "h264_vfr.mp4"])
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), ranks=st.integers(2, 5), patch=st.integers(1, 3), adjust=ADJUSTMENTS)
def test_ranks_decode_what_one_does(
    clip: ClipMaker, name: str, data: st.DataObject, ranks: int, patch: int, adjust: Adjustment
) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    frames = np.array(data.draw(st.lists(st.integers(0, stream.num_frames - 1), min_size=1, max_size=24)))
    parts = stream.rank_parts(frames, ranks, patch, adjust)
    with FlashCodec(num_threads=2) as codec:
        check_ranks_decode_the_same(codec, stream, frames, parts, patch)


@pytest.mark.skipif(FFMPEG is None, reason="the ffmpeg command line makes the clips")
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=6), ranks=st.integers(2, 4), adjust=ADJUSTMENTS)
def test_ranks_decode_videos_of_any_gops(tmp_path: Path, sizes: list[int], ranks: int, adjust: Adjustment) -> None:
    path, count = tmp_path / "gops.mp4", sum(sizes)
    keys = ",".join(f"{start / 25:.2f}" for start in starts_of(sizes))
    encode = ["-c:v", "libx264", "-preset", "ultrafast", "-sc_threshold", "0", "-force_key_frames", keys]
    try:
        run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25", "-frames:v", str(count), *encode, "-y", str(path))
    except subprocess.CalledProcessError:
        pytest.skip("this ffmpeg cannot encode H.264")
    stream = flashcodec.analyse_bitstream(path)
    assert stream.key_frames.tolist() == starts_of(sizes).tolist()
    with FlashCodec(num_threads=2) as codec:
        parts = stream.rank_parts(range(count), ranks, 2, adjust)
        check_ranks_decode_the_same(codec, stream, np.arange(count), parts, 2)
