"""Marks leave a stream, however the network has cut it, and tell which tokens its reader has."""

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.cluster.router.stream import MarkedStream, Marks

EVENTS = [b"data: begin\n\n", b"", b'data: {"text":": :0 1"}\n\n', b"event: a\ndata: 1\n\ndata: 2\n\n"]
MARKS = [b":\n\n", b":0 7,8\n\n", b":1 9\n\n", b":0 \n\n"]
TOKENS: list[list[list[int]] | None] = [[], [[7, 8]], [[7, 8], [9]], [[7, 8], [9]]]  # after each mark
END = b"data: [DONE]\n\n"


@given(st.sampled_from([b"", END]), st.lists(st.integers(0, 160), max_size=40))
def test_what_was_sent_before_a_mark_is_passed_on(end: bytes, cuts: list[int]) -> None:
    whole = b"".join(events + mark for events, mark in zip(EVENTS, MARKS, strict=True)) + end
    marks = Marks()
    stream, passed = MarkedStream(marks), b""
    begin = 0
    for cut in [*sorted(cuts), len(whole)]:
        passed += stream.take(whole[begin:cut])
        begin = max(begin, cut)
        seen = [number for number in range(len(EVENTS)) if passed == b"".join(EVENTS[: number + 1])]
        assert marks.tokens in ([TOKENS[number] for number in seen] or [None])
    assert passed == b"".join(EVENTS)
    assert marks.tokens == TOKENS[-1]
    assert stream.rest == end
