"""Marks leave a stream, however the network has cut it, and tell which tokens its reader has."""

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.cluster.router.stream import Mark, MarkedStream

EVENTS = [b"data: begin\n\n", b"", b'data: {"text":": :0 1"}\n\n', b"event: a\ndata: 1\n\ndata: 2\n\n"]
MARKS: list[tuple[bytes, Mark]] = [
    (b":\n\n", None),
    (b":0 7,8\n\n", (0, [7, 8])),
    (b":1 9\n\n", (1, [9])),
    (b":0 \n\n", (0, [])),
]
END = b"data: [DONE]\n\n"


@given(st.sampled_from([b"", END]), st.lists(st.integers(0, 160), max_size=40))
def test_what_was_sent_before_a_mark_is_passed_on(end: bytes, cuts: list[int]) -> None:
    whole = b"".join(events + mark for events, (mark, _) in zip(EVENTS, MARKS, strict=True)) + end
    stream, passed, noted = MarkedStream(), b"", list[Mark]()
    known = {0: 0} | {
        len(b"".join(EVENTS[: number + 1])): number + 1 for number in range(len(EVENTS)) if EVENTS[number]
    }
    begin = 0
    for cut in [*sorted(cuts), len(whole)]:
        passed += stream.take(whole[begin:cut], noted.append)
        begin = max(begin, cut)
        assert len(noted) >= known[len(passed)]
    assert passed == b"".join(EVENTS)
    assert noted == [mark for _, mark in MARKS]
    assert stream.rest == end
