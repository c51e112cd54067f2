"""Tokens come out once each and in order, however they come in."""

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.engine.requests.early_tokens import EarlyTokens
from unifiedserve.messages.api import TokenLogprob
from unifiedserve.messages.wire import Token


def token(number: int) -> Token:
    return Token(uid=1, index=0, number=number, token=TokenLogprob(100 + number))


@given(st.permutations(range(8)), st.lists(st.integers(0, 7)))
def test_all_come_out_in_order(numbers: list[int], again: list[int]) -> None:
    """Those that come a second time change nothing."""
    early, out = EarlyTokens(), []
    for number in [*numbers, *again]:
        out += early.ready(token(number), len(out))
    assert [each.number for each in out] == list(range(8))


def test_what_waits_is_dropped_with_its_attempt() -> None:
    early = EarlyTokens()
    assert early.ready(token(2), 0) == []
    early.clear()
    assert [each.number for each in early.ready(token(0), 0)] == [0]
    assert [each.number for each in early.ready(token(1), 1)] == [1]
