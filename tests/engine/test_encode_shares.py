"""Which units which node encodes: each wanted one once, and no node is far behind the others."""

from collections import Counter

from flashcodec.layouts import PatchLayout
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.engine.encoding.shares import share_out, sources_of
from unifiedserve.messages.load import EncodeNode
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.wire import MediaSource

LAYOUT = PatchLayout(28, 28, 14, 2)


def media(*shapes: tuple[int, int]) -> list[MediaSource]:
    """Return media of so many units, each of so many tokens."""
    sources, first = list[MediaSource](), 0
    for units, tokens in shapes:
        plan = MediaPlan(
            kind="video",
            frame_indices=tuple(range(2 * units)),
            layout=LAYOUT,
            units=units,
            patches_per_unit=4,
            tokens_per_unit=tokens,
        )
        sources.append(MediaSource(plan=plan, name="a video", first_unit=first))
        first += units
    return sources


def nodes(*pending: int) -> list[EncodeNode]:
    return [EncodeNode(f"http://node-{number}", tokens) for number, tokens in enumerate(pending)]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 600)), min_size=1, max_size=6),
    st.lists(st.integers(0, 5000), min_size=1, max_size=5),
    st.data(),
)
def test_each_wanted_unit_is_encoded_once(
    shapes: list[tuple[int, int]], pending: list[int], data: st.DataObject
) -> None:
    sources = media(*shapes)
    total = sum(units for units, _ in shapes)
    wanted = sorted(data.draw(st.sets(st.integers(0, total - 1), min_size=1)))
    shares = share_out(sources, wanted, nodes(*pending))
    assert sorted(unit for share in shares for unit in share.units) == wanted
    assert len({share.node.url for share in shares}) == len(shares)
    for share in shares:
        own = sources_of(sources, share.units)
        assert [sources[number].first_unit + unit for number in own for unit in own[number]] == share.units


def test_images_go_to_whoever_has_the_least_before_it() -> None:
    shares = share_out(media(*[(1, 100)] * 4), range(4), nodes(300, 0))
    assert Counter({share.node.url: len(share.units) for share in shares}) == {"http://node-1": 3, "http://node-0": 1}


def test_a_long_video_is_cut_where_groups_of_frames_end_and_a_short_one_is_not() -> None:
    first, second = share_out(media((64, 100)), range(64), nodes(0, 0))
    assert [first.units, second.units] == [[*range(32)], [*range(32, 64)]]
    assert [share.units for share in share_out(media((4, 100)), range(4), nodes(0, 0))] == [[*range(4)]]
