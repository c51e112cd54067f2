"""The plan: complete, minimal, and cut where it may be."""

import pytest
from flashcodec_clips import ClipMaker
from hypothesis import given, settings
from hypothesis import strategies as st

import flashcodec
from flashcodec import Bitstream, Plan

NAMES = ["h264_bframes.mp4", "h264_opengop.mp4", "h264_opengop.ts", "hevc_opengop.mp4", "h264_edit_list.mp4"]


@pytest.fixture(scope="module", params=NAMES)
def stream(request: pytest.FixtureRequest, clip: ClipMaker) -> Bitstream:
    return flashcodec.analyse_bitstream(clip(request.param))


def check_partition(plan: Plan, count: int, group: int) -> None:
    assert plan.segments[0].first == 0
    assert plan.segments[-1].last == count
    for segment, following in zip(plan.segments, plan.segments[1:], strict=False):
        assert segment.last == following.first
        assert segment.last % group == 0


@settings(max_examples=40)
@given(data=st.data(), engines=st.integers(1, 8), group=st.sampled_from([1, 2, 4]))
def test_segments_split_the_list_at_group_boundaries(
    stream: Bitstream, data: st.DataObject, engines: int, group: int
) -> None:
    frames = sorted(data.draw(st.lists(st.integers(0, stream.num_frames - 1), min_size=1, max_size=40)))
    plan = stream.plan(frames, engines, group)
    check_partition(plan, len(frames), group)
    key_packets = {gop.first_packet for gop in stream.gops}
    for segment in plan.segments:
        assert segment.packets_needed + segment.packets_skipped == sum(last - first for first, last in segment.runs)
        assert segment.packets_needed >= len(set(frames[segment.first : segment.last]))
        assert all(first in key_packets for first, _ in segment.runs)
        assert all(a[1] <= b[0] for a, b in zip(segment.runs, segment.runs[1:], strict=False))


def test_only_gops_with_a_target_are_read(clip: ClipMaker) -> None:
    stream = flashcodec.analyse_bitstream(clip("h264_bframes.mp4"))
    assert [gop.first_packet for gop in stream.gops] == [0, 30, 60, 90, 120]
    plan = stream.plan([95, 64])
    runs = [run for segment in plan.segments for run in segment.runs]
    assert sorted(first for first, _ in runs) == [60, 90]
    assert all(last - first < 12 for first, last in runs)


def test_frames_that_no_other_needs_are_skipped(clip: ClipMaker) -> None:
    for name in ("h264_bframes.mp4", "hevc_opengop.mp4"):
        plan = flashcodec.analyse_bitstream(clip(name)).plan([24])
        assert plan.packets_skipped >= 8


@pytest.mark.parametrize("name", ["h264_opengop.mp4", "h264_opengop.ts", "hevc_opengop.mp4"])
def test_a_leading_picture_is_decoded_from_the_gop_before(clip: ClipMaker, name: str) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    gop, following = stream.gops[1], stream.gops[2]
    leading, key = following.first_frame, int(stream.key_frames[2])
    assert leading < key, "the clip has no leading pictures"
    (segment,) = stream.plan([leading]).segments
    assert segment.runs[0][0] == gop.first_packet
    (segment,) = stream.plan([key]).segments
    assert segment.runs == ((following.first_packet, following.first_packet + 1),)


def test_an_intra_refresh_is_no_entry_point(clip: ClipMaker) -> None:
    stream = flashcodec.analyse_bitstream(clip("h264_intra_refresh.mp4"))
    assert len(stream.gops) > 1
    (segment,) = stream.plan([stream.num_frames - 1]).segments
    assert segment.runs[0][0] == 0


def test_work_is_spread_evenly_over_the_engines(clip: ClipMaker) -> None:
    stream = flashcodec.analyse_bitstream(clip("h264_bframes.mp4"))
    plan = stream.plan(range(stream.num_frames), engines=2, temporal_patch_size=2)
    costs = [segment.cost for segment in plan.segments]
    assert len(costs) >= 4
    assert max(costs) <= sum(costs) / 2
    assert plan.packets_needed + plan.packets_skipped <= 1.2 * stream.num_frames


def test_frames_that_are_not_there(stream: Bitstream) -> None:
    for frame in (-1, stream.num_frames):
        with pytest.raises(IndexError):
            stream.plan([frame])
    assert stream.plan([]).segments == ()
