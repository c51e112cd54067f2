"""Costs, interference and reads that are fitted to measured times: what times were made of is found again."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.errors import ConfigError
from unifiedserve.placement import Stage
from unifiedserve.profiling.asking import Work
from unifiedserve.profiling.effort import QUICK
from unifiedserve.profiling.fitting import fit
from unifiedserve.profiling.interference import factors, measure_alone
from unifiedserve.profiling.pulls import pull_costs
from unifiedserve.profiling.samples import Samples, spread
from unifiedserve.profiling.spans import Span, busy, overlap
from unifiedserve.profiling.stage_costs import Shared, waste

seconds = st.floats(1e-4, 10)


@given(seconds, seconds, seconds)
def test_costs_that_add_up_exactly_are_found(first: float, token: float, context: float) -> None:
    rows = [[1, tokens, tokens * tokens / 2] for tokens in (1, 2, 5, 9)]
    times = [first + token * row[1] + context * row[2] for row in rows]
    assert fit(rows, times) == pytest.approx([first, token, context], rel=1e-4)


@given(st.lists(st.tuples(st.integers(1, 1000), seconds), min_size=1, max_size=8))
def test_no_cost_is_below_nothing(measured: list[tuple[int, float]]) -> None:
    costs = fit([[1, tokens] for tokens, _ in measured], [took for _, took in measured])
    assert min(costs) >= 0
    assert max(costs) > 0


def test_one_disturbed_measurement_changes_nothing() -> None:
    samples = Samples()
    for tokens in (10, 100):
        for disturbed in (1, 1, 9):
            samples.add([1, tokens], disturbed * (0.5 + 0.01 * tokens))
    assert samples.fit() == pytest.approx([0.5, 0.01])
    assert spread([1.0]) == 0.0
    assert spread([1.0, 2.0, 3.0]) == pytest.approx(0.5)


@given(st.floats(1, 5), st.floats(1, 5))
def test_interference_is_found_from_spans_that_overlap_in_part(by_encode: float, by_prefill: float) -> None:
    """A decode step of a second alone, beside others for no, half or all of it."""
    runs = []
    for stage, factor in ((Stage.ENCODE, by_encode), (Stage.PREFILL, by_prefill)):
        for part in (0.0, 0.5, 1.0):
            took = 1 + part * (factor - 1)
            decode = Span(Stage.DECODE, "decode", 10.0, 10.0 + took, 1)
            runs.append([decode, Span(stage, stage.value, 9.0, 10.0 + part * took, 1)])
    found = factors(Stage.DECODE, [Stage.ENCODE, Stage.PREFILL, Stage.DECODE], runs, lambda span: 1.0)
    assert found == pytest.approx({Stage.ENCODE: by_encode, Stage.PREFILL: by_prefill}, rel=1e-3)


def test_times_of_spans_that_touch_are_one() -> None:
    spans = [Span(Stage.VISION, "decode", start, end, 1) for start, end in ((0, 2), (1, 3), (5, 6))]
    assert busy(spans) == [(0, 3), (5, 6)]
    assert overlap(Span(Stage.ENCODE, "encode", 2, 6, 1), busy(spans)) == pytest.approx(0.5)


def test_reads_cost_by_their_pages() -> None:
    spans = [Span(Stage.DECODE, "pull", 0, 1e-3 + pages * 1e-4, 1, 0, pages * 4096) for pages in (1, 5, 20)]
    spans += [Span(Stage.PREFILL, "pull", 0, 1e-3 + pages * 3e-4, 1, 0, pages * 512) for pages in (2, 9)]
    costs = pull_costs(spans, {"kv": 4096, "visual": 512}).costs
    assert costs == pytest.approx({"pull": 1e-3, "pull_kv_page": 1e-4, "pull_visual_page": 3e-4}, rel=1e-3)
    assert not pull_costs([], {"kv": 1, "visual": 1}).costs


def test_what_the_encoder_loses_beside_decode_is_what_its_batches_take_longer() -> None:
    """Of two cores it has one while decode runs: half of the speed, less half of the waste."""
    for waste_there, rate in ((0.0, 0.5), (0.4, 0.4), (1.0, 0.25)):
        noise = (0.05, -0.05)  # of single measurements
        shared = [Shared(1 + 2 * rate + off, 1 + 2, 2) for off in noise]
        assert waste(shared, 2) == pytest.approx(waste_there)
    assert waste([Shared(2.0, 2.0, 0.0)], 2) == 0
    assert waste([Shared(2.0, 3.0, 1.0)], 1) == 0


class SlowServer:
    """A server that decodes nothing before it has been asked so many times; its answers have no end."""

    def __init__(self, needed: int) -> None:
        self.asked, self.needed = 0, needed

    async def ask(self, work: Work) -> None:
        self.asked += 1
        await asyncio.Event().wait()

    async def spans(self) -> list[Span]:
        return [Span(Stage.DECODE, "decode", 1.0, 3.0, 1)] if self.asked >= self.needed else []


def decoding_alone(server: Any) -> dict[Stage, float]:
    """Return how many times longer decode takes than its costs say: a second."""
    costs: Any = SimpleNamespace(decode=lambda requests, tokens: 1.0)
    effort, works = QUICK._replace(pair_seconds=1e-4), {Stage.DECODE: Work(64, 512)}
    return asyncio.run(measure_alone(server, works, costs, effort, lambda step: None))


def test_a_stage_that_is_slow_to_begin_gets_more_time() -> None:
    server = SlowServer(3)
    assert decoding_alone(server) == {Stage.DECODE: 2.0}
    assert server.asked == 3


def test_a_stage_that_never_begins_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^decode has done nothing in the time for it"):
        decoding_alone(SlowServer(100))
