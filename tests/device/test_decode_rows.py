"""What a GPU keeps of running sequences is what the host means, whoever joins, grows and leaves."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from unifiedserve.device import CPU, DecodeRow
from unifiedserve.device.cuda.decode_rows import EMPTY, DecodeRows
from unifiedserve.device.cuda.step_graphs import FIRST_CONTEXT, context_bucket, row_bucket, row_buckets

ROWS, PAGES, PAGE = 5, 6, 4


class RowsMachine(RuleBasedStateMachine):
    """The host's sequences, by row, beside the buffer; the first free row need not be the one that is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = DecodeRows(ROWS, PAGES, CPU)
        self.sequences: dict[int, DecodeRow] = {}
        self.stepped: list[int] = []
        self.numbers = iter(range(10**6))

    def _pages(self, tokens: int) -> list[int]:
        return [next(self.numbers) for _ in range(-(-tokens // PAGE))]

    @rule(number=st.integers(0, ROWS - 1), length=st.integers(1, PAGE * (PAGES - 2)), offset=st.integers(-9, 9))
    def join(self, number: int, length: int, offset: int) -> None:
        """Begin a sequence, also where another one was."""
        if number in self.sequences:
            self.rows.forget(number)
        self.sequences[number] = DecodeRow(number, 100 + length, length, offset, self._pages(length + 1))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.sequences)))
        del self.sequences[number]
        self.rows.forget(number)

    @rule(data=st.data(), known=st.booleans())
    def step(self, data: st.DataObject, known: bool) -> None:
        """Let some take a step; their next tokens are the device's, or told by the host."""
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.sequences) or [0]), unique=True))
        wanted = [self.sequences[number] for number in chosen if number in self.sequences]
        if any(row.length >= PAGE * PAGES - 1 for row in wanted):
            return
        self.rows.tell(wanted)
        for row in wanted:
            tokens = self.rows.tokens[row.number]
            assert row.token is None or tokens == row.token
            assert self.rows.table[row.number, : len(row.pages)].tolist() == list(row.pages)
            assert self.rows.offsets[row.number] == row.offset
        expected = {row.number: row.length for row in wanted}
        assert self.rows.lengths.tolist() == [expected.get(number, EMPTY) for number in range(ROWS)]
        slots = self.rows.slots(ROWS, PAGE).tolist()
        for number in range(ROWS):
            row = self.sequences.get(number)
            place = None if row is None or number not in expected else divmod(row.length, PAGE)
            assert slots[number] == (-1 if place is None or row is None else row.pages[place[0]] * PAGE + place[1])
        self.rows.advance(ROWS)
        for row in wanted:
            self.rows.tokens[row.number] = drawn = row.length * 7
            more = self._pages(1) if len(row.pages) * PAGE <= row.length + 1 else []
            token = drawn if known else None
            self.sequences[row.number] = DecodeRow(row.number, token, row.length + 1, row.offset, [*row.pages, *more])

    @invariant()
    def empty_rows_are_known(self) -> None:
        assert all(length >= EMPTY for length in self.rows.lengths.tolist())


TestRows = RowsMachine.TestCase
TestRows.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_step_without_changes_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, pages = DecodeRows(ROWS, PAGES, CPU), [3, 4]
    rows.tell([DecodeRow(0, 5, 2, 0, pages)])
    rows.advance(ROWS)
    monkeypatch.setattr(type(CPU), "upload", None)
    rows.tell([DecodeRow(0, None, 3, 0, pages)])
    assert rows.lengths[0] == 3


def test_more_pages_than_a_row_has_are_refused() -> None:
    with pytest.raises(ValueError, match="7 pages in a row for 6"):
        DecodeRows(ROWS, PAGES, CPU).tell([DecodeRow(0, 5, 2, 0, list(range(7)))])


@given(most=st.integers(1, 300), data=st.data())
def test_rows_have_a_graph_that_is_not_much_larger(most: int, data: st.DataObject) -> None:
    buckets = list(row_buckets(most))
    assert buckets == sorted(set(buckets))
    assert buckets[-1] == most
    assert all(larger <= max(2 * smaller, smaller + 8) for smaller, larger in pairwise(buckets))
    rows = data.draw(st.integers(1, most))
    assert row_bucket(rows, most) == min(bucket for bucket in buckets if bucket >= rows)


@given(most=st.integers(1, 10**6), data=st.data())
def test_contexts_have_a_graph(most: int, data: st.DataObject) -> None:
    tokens = data.draw(st.integers(1, most))
    bucket = context_bucket(tokens, most)
    assert tokens <= bucket <= most
    assert bucket <= max(FIRST_CONTEXT, 4 * tokens)
    assert torch.iinfo(torch.int32).max > bucket
