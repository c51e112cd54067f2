"""Measure how stages on a shared device slow each other (UnifiedServe Fig. 6).

Each pair of them runs side by side. Every stage has a question that keeps it busy, and two of them are asked again and
again at the same time. No question has one stage alone, so each span of the timeline counts by how much of it lies
beside which others: the time that it took, over the time that it takes alone, is 1 and a part for each. Least squares
find these parts, over the spans of all pairs.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import mean
from typing import NamedTuple

from unifiedserve.errors import ConfigError
from unifiedserve.placement import Stage
from unifiedserve.profiling.asking import FRAME_PIXELS, Asker, Work
from unifiedserve.profiling.effort import Effort
from unifiedserve.profiling.fitting import fit
from unifiedserve.profiling.media import Media
from unifiedserve.profiling.spans import Span, busy, named, overlap
from unifiedserve.scheduling.simulation import StageCosts

_TEXT = 64  # tokens
_PROMPT = 512  # tokens of one that keeps prefill busy
_STREAM = 512  # tokens of an answer that keeps decode busy
_FEW_FRAMES, _FEW_PIXELS = 4, FRAME_PIXELS // 4  # of a video that leaves little to encode
_MANY_PIXELS = 4 * FRAME_PIXELS
_TRIES, _LONGER = 4, 4  # with a stage that does nothing in its time: on a slow machine a first token takes longer

Alone = Callable[[Span], float]  # the seconds that a span takes alone
Matrix = dict[Stage, dict[Stage, float]]


async def measure_interference(
    asker: Asker, works: Mapping[Stage, Work], costs: StageCosts, effort: Effort, step: Callable[[str], object]
) -> Matrix:
    """Return how many times longer each stage takes beside each other one, in separate processes."""
    lone = {}
    for stage, work in works.items():
        step(f"{stage} alone")
        lone[stage] = await _alone(asker, stage, work, effort.pair_seconds)
    runs = [run.spans for run in lone.values()]
    for pair in combinations(works, 2):
        step(f"{pair[0]} beside {pair[1]}")
        seconds = max(lone[stage].seconds for stage in pair)
        runs.append(await _driven(asker, [works[stage] for stage in pair], seconds))
    return {stage: factors(stage, list(works), runs, alone_in(stage, costs, lone[stage].spans)) for stage in works}


async def measure_alone(
    asker: Asker, works: Mapping[Stage, Work], costs: StageCosts, effort: Effort, step: Callable[[str], object]
) -> dict[Stage, float]:
    """Return how many times longer each stage takes alone than its costs say."""
    found = {}
    for stage, work in works.items():
        step(f"{stage} alone")
        spans = named((await _alone(asker, stage, work, effort.pair_seconds)).spans, stage)
        alone = alone_in(stage, costs, spans)
        found[stage] = sum(span.seconds for span in spans) / sum(map(alone, spans))
    return found


class _Run(NamedTuple):
    """Hold all spans of a run, and for how many seconds it was driven."""

    spans: list[Span]
    seconds: float


async def _alone(asker: Asker, stage: Stage, work: Work, seconds: float) -> _Run:
    """Run a stage alone, for so many seconds; longer if it has done nothing by then.

    Raises ConfigError if it still has done nothing after several tries.
    """
    for _ in range(_TRIES):
        spans = await _driven(asker, [work], seconds)
        if named(spans, stage):
            return _Run(spans, seconds)
        seconds *= _LONGER
    raise ConfigError(f"{stage} has done nothing in the time for it: the machine is too slow, or too busy")


def works_of(media: Media, *, sees: bool) -> dict[Stage, Work]:
    """Return a question for each stage that keeps it busy. A model that takes no media has fewer stages."""
    texts = {Stage.PREFILL: Work(_PROMPT, 1), Stage.DECODE: Work(_TEXT, _STREAM)}
    if not sees:
        return texts
    return {
        Stage.VISION: Work(_TEXT, 1, media.video, _FEW_FRAMES, _FEW_PIXELS),
        Stage.ENCODE: Work(_TEXT, 1, media.image, pixels=_MANY_PIXELS),
        **texts,
    }


def alone_in(stage: Stage, costs: StageCosts, lone: Sequence[Span]) -> Alone:
    """Return what says how long a span of a stage takes alone: from its costs, or as the mean of those alone."""
    if stage is Stage.VISION:
        average = mean(span.seconds for span in named(lone, stage))
        return lambda span: average
    if stage is Stage.ENCODE:
        return lambda span: costs.encode(span.tokens)
    if stage is Stage.PREFILL:
        return lambda span: costs.prefill(span.tokens, span.tokens * _PROMPT / 2)
    return lambda span: costs.decode(span.requests, span.requests * (_TEXT + _STREAM // 2))


def factors(stage: Stage, stages: Iterable[Stage], runs: Iterable[Sequence[Span]], alone: Alone) -> dict[Stage, float]:
    """Return how many times longer a stage takes beside others, from some runs' spans."""
    others = [other for other in stages if other is not stage]
    rows, seconds = [], []
    for spans in runs:
        for span, beside in _beside(stage, others, spans):
            expected = alone(span)
            rows.append([expected, *(part * expected for part in beside)])
            seconds.append(span.seconds)
    own, *parts = fit(rows, seconds)
    return {other: 1 + part / own if own else 1.0 for other, part in zip(others, parts, strict=True)}


def _beside(stage: Stage, others: Sequence[Stage], spans: Sequence[Span]) -> Iterator[tuple[Span, list[float]]]:
    """Yield each span of a stage with its parts that lie beside the others."""
    times = [busy(named(spans, other)) for other in others]
    for span in named(spans, stage):
        yield span, [overlap(span, each) for each in times]


async def _driven(asker: Asker, works: Sequence[Work], seconds: float) -> list[Span]:
    """Ask these questions again and again, side by side; return all spans from the start on."""
    before = max((span.end for span in await asker.spans()), default=0.0)
    end = time.monotonic() + seconds
    await asyncio.gather(*(_again(asker, work, end) for work in works))
    return [span for span in await asker.spans() if span.start >= before]


async def _again(asker: Asker, work: Work, end: float) -> None:
    """Ask a question until that time, once at least; an answer that is not complete by then is cut."""
    while True:
        asking = asyncio.ensure_future(asker.ask(work))
        cut = max(0.0, end - time.monotonic()) if work.generate > 1 else None
        done, _ = await asyncio.wait([asking], timeout=cut)
        if not done:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            return
        await asking
        if time.monotonic() >= end:
            return
