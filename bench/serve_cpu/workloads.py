"""The workloads: requests, and the figures taken from their answers. Times in seconds, rates a second."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import timeline
from client import Answer
from course import Course
from memory import watched
from phases import phases, phases1
from rows import AT_A_TIME
from streaming import grown, moments, running_streams, since, steady_from

Figures = dict[str, Any]
AT_ONCE = 4  # questions about images at once
STREAMS = 4
PROMPTS = 5


async def warm_up(course: Course, names: Collection[str]) -> None:
    """Send one request of each kind that the workloads of these names have."""
    await asyncio.gather(*(course.text(course.sizes.image) for _ in range(STREAMS)))
    if not TEXT_ONLY.issuperset(names):
        await course.image(course.media.images[-1])
    if not VIDEOLESS.issuperset(names):
        await course.video(course.media.videos[-1])


async def decode(course: Course) -> Figures:
    """Measure one text request: the time between its tokens."""
    answer = await course.text(course.sizes.alone)
    return {
        "tbt": statistics.median(timeline.times_per_token(answer.arrivals)),
        "ttft": answer.ttft,
        "prompt_tokens": answer.prompt_tokens,
    }


async def prompt(course: Course) -> Figures:
    """Measure long prompts, one after the other: the time to the first token."""
    answers = [await course.long_prompt() for _ in range(PROMPTS)]
    return {
        "ttft": statistics.median(answer.ttft for answer in answers),
        "prompt_tokens": answers[0].prompt_tokens,
    }


async def text8(course: Course) -> Figures:
    """Measure eight text requests at once."""
    return rates(await asyncio.gather(*(course.text(course.sizes.text) for _ in range(8))))


async def streams(course: Course) -> Figures:
    """Measure texts at once, by their number: the rate from when all have begun until the first one ends."""
    found: Figures = {}
    for count in AT_A_TIME:
        answers = await asyncio.gather(*(course.stream() for _ in range(count)))
        begun, ended = max(answer.arrivals[0] for answer in answers), min(answer.arrivals[-1] for answer in answers)
        arrivals = [answer.arrivals for answer in answers]
        gaps = [gap for times in arrivals for gap in timeline.times_per_token([t for t in times if t >= begun])]
        found |= {
            f"tokens{count}": timeline.rate(arrivals, begun, ended),
            f"tbt{count}": statistics.median(gaps) if gaps else None,  # the first ended before the last began
            "prompt_tokens": answers[0].prompt_tokens,
        }
    return found


async def images(course: Course) -> Figures:
    """Measure eight questions about an image each, four at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(path: Path) -> Answer:
        async with gate:
            return await course.image(path)

    return rates(await asyncio.gather(*map(ask, course.media.images[:8])))


async def video(course: Course) -> Figures:
    """Measure a question about a video while nothing else runs."""
    answer = await course.video(course.media.videos[0])
    return {"ttft": answer.ttft, "prompt_tokens": answer.prompt_tokens}


async def stall1(course: Course) -> Figures:
    """Measure a question about a video while four text streams run."""
    return await stall(course, course.media.videos[1:2])


async def stall4(course: Course) -> Figures:
    """Measure four questions about a video each, at once, while four text streams run."""
    return await stall(course, course.media.videos[2:6])


async def memory(course: Course) -> Figures:
    """Measure the same, with the memory looked at instead of the clock."""
    with watched(course.pid) as peak:
        peak.look()
        idle = peak.bytes
        await stall4(course)
    return {"idle": idle, "peak": peak.bytes}


async def memory_text(course: Course) -> Figures:
    """Measure the memory when the server has started, and its peak with four text streams."""
    with watched(course.pid) as peak:
        peak.look()
        idle = peak.bytes
        await asyncio.gather(*(course.stream() for _ in range(STREAMS)))
    return {"idle": idle, "peak": peak.bytes}


async def stall(course: Course, videos: Sequence[Path]) -> Figures:
    async with running_streams(course, STREAMS) as streams:
        steady = max(steady_from(answer, course.sizes.settle) for answer in streams)
        start = time.monotonic()
        answers = await asyncio.gather(*map(course.video, videos))
        await grown(streams, [moments(answer) + course.sizes.after for answer in streams])
    arrivals = [since(start, answer.arrivals) for answer in streams]
    first_tokens = since(start, sorted(answer.arrivals[0] for answer in answers))
    window = timeline.Window(*since(start, [steady, start]), max(first_tokens))
    return timeline.figures(arrivals, window) | {
        "ttft": statistics.mean(answer.ttft for answer in answers),
        "prompt_tokens": answers[0].prompt_tokens,
        "steady": window.steady,
        "streams": arrivals,
        "sent": since(start, [answer.start for answer in answers]),
        "first_tokens": first_tokens,
    }


def rates(answers: Sequence[Answer]) -> Figures:
    """Return the rates of requests that were sent at once."""
    elapsed = max(answer.end for answer in answers) - min(answer.start for answer in answers)
    return {
        "requests": len(answers) / elapsed,
        "tokens": sum(len(answer.arrivals) for answer in answers) / elapsed,
        "ttft": statistics.mean(answer.ttft for answer in answers),
        "prompt_tokens": answers[0].prompt_tokens,
    }


WORKLOADS: dict[str, Callable[[Course], Awaitable[Figures]]] = {
    workload.__name__: workload
    for workload in (
        decode,
        prompt,
        streams,
        text8,
        images,
        video,
        phases,
        phases1,
        stall1,
        stall4,
        memory,
        memory_text,
    )
}
TEXT_ONLY = frozenset({"decode", "prompt", "streams", "text8", "memory_text"})
VIDEOLESS = TEXT_ONLY | {"images"}
LONG = {"phases", "phases1"}  # have a video for which vLLM needs more room than it takes by itself
