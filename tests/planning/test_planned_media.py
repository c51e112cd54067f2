"""Videos and images become units to encode, and seconds of cores to decode them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_cases import COSTS, profile

from unifiedserve.planning.arrivals import arrivals_of
from unifiedserve.planning.workload import RequestSize, Workload
from unifiedserve.scheduling.simulation import Arrival, StageCosts

VIDEO = Workload("one", (RequestSize("video", 10, 4, seconds=(60.0,)),), (0.0,))
TOKENS = 40  # of a pair of frames
GOLDEN = 0.618033988749895  # multiples of it are spread evenly


def video(costs: StageCosts, frames: int) -> Arrival:
    return arrivals_of(VIDEO, profile(costs=costs), frames)[0]


def test_pairs_of_frames_stay_apart_where_they_take_long_to_encode() -> None:
    slow = StageCosts(visual_token=0.001, video_second=0.01)
    fast = StageCosts(visual_token=1e-5, video_second=0.01)
    assert video(slow, 16).units == [TOKENS] * 8
    assert video(fast, 16).units == [4 * TOKENS] * 2
    assert sum(video(StageCosts(), 16).units) == 8 * TOKENS


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.floats(1.0, 12.0))
def test_gops_are_decoded_up_to_the_last_frame_that_is_looked_at(frames: int, gop: float) -> None:
    """On average over all places at which the first frame may lie, of a video without end."""
    spacing, places = 60 / frames, np.mod(np.arange(200) * GOLDEN, 1)
    times = (np.arange(int(1500 / spacing))[:, None] + places) * spacing
    decoded = []
    for column in times.T:
        groups, last = np.floor(column / gop), np.mod(column, gop)
        decoded.append(sum(np.maximum.reduceat(last, np.unique(groups, return_index=True)[1])) / spacing / len(column))
    costs = StageCosts(video_second=0.01, gop_seconds=gop)
    assert costs.video(60.0, frames) == pytest.approx(0.01 * 60 * np.mean(decoded), rel=0.05)


def test_all_of_a_videos_decoding_is_in_its_units() -> None:
    for frames in (2, 16, 120):
        found = video(COSTS, frames)
        assert len(found.units) * found.decode == pytest.approx(COSTS.video(60.0, frames))
