"""Cost the stages' work: requests one at a time, and the server's timeline of them.

The server must decode all media before it encodes them (--no-overlap), so that no two stages compute at once, and have
no caches. Steps without drafts each take a sequence one token further. Each cost is fitted to medians.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from math import fsum
from statistics import median
from typing import NamedTuple

from unifiedserve.config import EngineConfig
from unifiedserve.placement import Stage
from unifiedserve.profiling.asking import Asked, Asker, Work
from unifiedserve.profiling.effort import Effort
from unifiedserve.profiling.found import Found
from unifiedserve.profiling.media import Media
from unifiedserve.profiling.samples import Samples, spread
from unifiedserve.profiling.spans import Span, intervals, named
from unifiedserve.scheduling.simulation import StageCosts

#: a server in which each question is as good as new, each decode step alike, and no two stages compute at once
SERVER_OPTIONS = ("--no-prefix-cache", "--visual-cache-mib", "0", "--no-overlap", "--speculative-tokens", "0")
_TEXT = 64  # tokens around media
_ENDLESS = 4000  # tokens

Step = Callable[[str], object]  # told what is measured next


async def measure_costs(asker: Asker, media: Media, effort: Effort, step: Step) -> Found:
    """Return the costs on a server that does nothing else; those of stages alone that its model has."""
    step("warming up")
    video = await warm_up(asker, media, effort)
    context = await asker.context()
    found = await _prefill(asker, [tokens for tokens in effort.prompts if 2 * tokens <= context], effort, step)
    found = found.with_more(await _decode(asker, context, effort, step))
    if video:
        found = found.with_more(await _encode(asker, media, effort, step))
        found = found.with_more(await _video(asker, video, media, found.costs, effort, step))
    return found


async def warm_up(asker: Asker, media: Media, effort: Effort) -> Work | None:
    """Ask for something of each kind; return a question about the video that the model takes, None if it takes none."""
    await asker.ask(Work(_TEXT, 8))
    if not await asker.first_taken([Work(_TEXT, 8, media.image)]):
        return None
    halves = [effort.frames >> half for half in range(effort.frames.bit_length() - 1)]  # down to two
    return await asker.first_taken([Work(_TEXT, 1, media.video, frames) for frames in halves])


async def _prefill(asker: Asker, sizes: Sequence[int], effort: Effort, step: Step) -> Found:
    """Measure lone texts of several lengths; the rest of their first tokens' time is the way and back."""
    passes, around, messages = Samples(), [], []
    for tokens in sizes:
        step(f"prefill of {tokens} tokens")
        for _ in effort.rounds():
            asked = await asker.ask(Work(tokens, 2))
            trace = await asker.spans(asked)
            spans = named(trace, Stage.PREFILL)
            for span, stop in zip(spans, accumulate(span.tokens for span in spans), strict=True):
                passes.add([1, span.tokens, span.tokens * (stop - span.tokens / 2)], span.seconds)
            around.append(asked.ttft - (spans[-1].end - spans[0].start))
            messages.append(named(trace, Stage.DECODE, "queue")[0].start - spans[-1].end)
    first, token, context = passes.fit()
    message = max(0.0, median(messages))
    costs = {
        "prefill_pass": first,
        "prompt_token": token,
        "prompt_context": context,
        "message": message,
        "reply": message,
        "intake": max(0.0, median(around) - 2 * message),
    }
    return Found(costs, {"prefill": passes.spread, "intake": spread(around)})


async def _decode(asker: Asker, longest: int, effort: Effort, step: Step) -> Found:
    """Measure the time from step to step of some sequences of several contexts.

    There are as many as there happen to be. Steps beside a prompt of one of them do not count: these share the machine
    with it.
    """
    steps = Samples()
    for batch, context in effort.batches:
        if context + effort.answer > longest:
            continue
        step(f"decoding {batch} sequences of {context} tokens")
        for _ in effort.rounds():
            asked = await asyncio.gather(*(asker.ask(Work(context, effort.answer)) for _ in range(batch)))
            traces = [await asker.spans(each) for each in asked]
            alone = max(named(trace, Stage.PREFILL)[-1].end for trace in traces)
            held = asked[-1].prompt_tokens + effort.answer // 2
            for span, seconds in intervals(named(traces[-1], Stage.DECODE)):
                if span.start > alone:
                    steps.add([1, span.requests, span.requests * held], seconds)
    first, sequence, context_token = steps.fit()
    costs = {"decode_pass": first, "sequence": sequence, "context_token": context_token}
    return Found({**costs, "lone_step": await lone_step(asker)}, {"decode": steps.spread})


async def lone_step(asker: Asker) -> float:
    """Return the seconds of a decode step that the worker measured at its start."""
    return await asker.gauge("slo_tbt_seconds") / EngineConfig().scheduling.seconds_between_tokens(1.0)


async def _encode(asker: Asker, media: Media, effort: Effort, step: Step) -> Found:
    """Measure lone images of several sizes."""
    batches, decoded = Samples(), []
    for pixels in effort.pixels:
        step(f"encoding an image of {pixels} pixels")
        for _ in effort.rounds():
            trace = await asker.spans(await asker.ask(Work(_TEXT, 1, media.image, pixels=pixels)))
            for span in named(trace, Stage.ENCODE):
                batches.add([1, span.tokens], span.seconds)
            decoded += [span.seconds for span in named(trace, Stage.VISION)]
    first, token = batches.fit()
    costs = {"encode_batch": first, "visual_token": token, "image": median(decoded)}
    return Found(costs, {"encode": batches.spread, "image": spread(decoded)})


async def _video(
    asker: Asker, video: Work, media: Media, costs: Mapping[str, float], effort: Effort, step: Step
) -> Found:
    """Measure a lone video, then one beside a stream: decode takes half of the cores from the encoder, which waits."""
    around, analyses, cores, steps, shares = [], [], [], [], []
    whole = StageCosts(video_second=1.0, gop_seconds=media.gop_seconds).video(media.video_seconds, video.frames)
    for number in effort.rounds():
        step(f"a video alone and beside a stream, {number + 1} of {effort.repeats} at most")
        asked = await asker.ask(video)
        spans = await asker.spans(asked)
        queue, units = named(spans, Stage.VISION, "queue")[0], named(spans, Stage.VISION)
        around.append(_around(asked, queue, spans))
        analyses.append(units[0].start - queue.end)
        cores.append(sum(unit.seconds for unit in units) / whole)
        beside, decoding = await _beside_a_stream(asker, video)
        steps += [span.seconds for span in decoding if span.end < beside[-1].end]
        shares.append(Shared.of(named(spans, Stage.ENCODE), beside, decoding))
    lone = costs["decode_pass"] + costs["sequence"] + 500 * costs["context_token"]
    found = {
        "medium": max(0.0, median(around) - costs["intake"] - 2 * costs["message"]),
        "analysis": max(0.0, median(analyses)),
        "video_second": median(cores),
        "gop_seconds": media.gop_seconds,
        "half": max(1.0, median(steps) / lone) if steps else 1.0,
        "waste": waste(shares, len(os.sched_getaffinity(0))),
    }
    return Found(found, {"video": spread(cores), "half": spread(steps)})


def _around(asked: Asked, queue: Span, spans: Sequence[Span]) -> float:
    """Return a first token's seconds before its media came to vision, and after prefill.

    Prefill is that of its prompt.
    """
    return asked.ttft - (named(spans, Stage.PREFILL)[-1].end - queue.start)


async def _beside_a_stream(asker: Asker, video: Work) -> tuple[list[Span], list[Span]]:
    """Return the encoder's spans of a video beside a stream, and the stream's. The stream's are from then on."""
    async with streaming(asker):
        beside = named(await asker.spans(await asker.ask(video)), Stage.ENCODE)
    decoding = named(await asker.spans(), Stage.DECODE)
    return beside, [span for span in decoding if span.start > beside[0].start]


@asynccontextmanager
async def streaming(asker: Asker) -> AsyncIterator[None]:
    """Keep an answer going."""
    stream = asyncio.create_task(asker.ask(Work(_TEXT, _ENDLESS)))
    try:
        yield
    finally:
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)


class Shared(NamedTuple):
    """Hold the seconds of the same batches of the encoder.

    They ran `alone` and `beside` decode; `both` are those of both at once.
    """

    alone: float
    beside: float
    both: float

    @classmethod
    def of(cls, alone: Sequence[Span], beside: Sequence[Span], decoding: Sequence[Span]) -> "Shared":
        """Look at the spans of the encoder, and of what decoded beside it."""
        both = sum(max(0.0, min(a.end, b.end) - max(a.start, b.start)) for a in beside for b in decoding)
        return cls(sum(span.seconds for span in alone), sum(span.seconds for span in beside), both)


def waste(measured: Sequence[Shared], cores: int) -> float:
    """Return what the encoder loses beyond decode's cores, relative to its part of the rest.

    It is relative to the encoder's part of the rest. While decode runs it gets the `share` of the cores. The sums
    count, because each single difference is small.
    """
    share = 1 - (cores // 2 or 1) / cores
    alone, beside, both = (fsum(parts) for parts in zip(*measured, strict=True))
    if not both or not share:
        return 0.0
    return min(1.0, max(0.0, 1 - (alone - (beside - both)) / (both * share)) / (1 - share))
