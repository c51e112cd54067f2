"""The distinct tokens of an answer are the same, however it has grown and whatever was drafted meanwhile."""

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.sampling.seen import Seen

VOCAB = 12
TOKENS = st.lists(st.integers(0, VOCAB + 2), max_size=6)


@given(st.lists(st.tuples(TOKENS, TOKENS), max_size=5))
def test_distinct_tokens(growth: list[tuple[list[int], list[int]]]) -> None:
    seen, history = Seen(VOCAB), list[int]()
    for more, drafted in growth:
        history += more
        found = seen.tokens(history, drafted).tolist()
        assert sorted(found) == sorted({token for token in history + drafted if token < VOCAB})
