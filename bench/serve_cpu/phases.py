"""Short texts that arrive in every phase of a long video, each sent on time whatever happens to those before."""

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import timeline
from client import Answer
from course import LONG_PIXELS, Course
from prompts import Prompts
from streaming import running_streams, since, steady_from

STAGES = ("vision", "encode", "prefill")
UNKNOWN = "video"  # the phase's name where a server does not tell of its stages
MICROSECOND = 1e-6


async def phases(course: Course) -> dict[str, Any]:
    """Measure texts while a video is worked on and nothing else runs."""
    return await measure(course, streams=0)


async def phases1(course: Course) -> dict[str, Any]:
    """Measure the same while a text streams."""
    return await measure(course, streams=1)


async def measure(course: Course, streams: int) -> dict[str, Any]:
    """Return what the texts wait for their first tokens, alone and with the video, in seconds, and the video's wait.

    A text counts from when it was due. `phases` are [start, end) in seconds after the video was sent.
    """
    words, path = course.prompts.branch(), course.media.videos[0]
    idle = [(await send(course, words, time.monotonic())).ttft for _ in range(course.sizes.before)]
    alone = await course.video(path, LONG_PIXELS)
    async with running_streams(course, streams) as running:
        video = Answer()
        async with asyncio.TaskGroup() as group:
            group.create_task(course.video(path, LONG_PIXELS, video))
            texts = await send_texts(course, words, video)
    found = partition(await course.client.trace(video.id), video.ttft)
    waits = [(since(video.start, [text.start, text.arrivals[0]])) for text in texts]
    return {
        "alone": alone.ttft,
        "ttft": video.ttft,
        "prompt_tokens": video.prompt_tokens,
        "phases": found,
        "texts": [[due, first - due, phase_at(found, due)] for due, first in waits],
        "late": max(text.sent - text.start for text in texts),
        **compared(idle, [first - due for due, first in waits]),
        **(smoothness(running, video, course.sizes.settle) if streams else {}),
    }


async def send(course: Course, words: Prompts, due: float) -> Answer:
    """Send a short text at `due`, on the monotonic clock, and wait for all of its answer."""
    await asyncio.sleep(due - time.monotonic())
    return await course.client.ask(words.text(course.sizes.short), course.sizes.image, Answer(start=due))


async def send_texts(course: Course, words: Prompts, video: Answer) -> list[Answer]:
    """Send a text every so often, at least one, until the video's first token is there; return the complete answers."""
    sent: list[asyncio.Task[Answer]] = []
    async with asyncio.TaskGroup() as group:
        for number in itertools.count():
            due = video.start + (number + 0.5) * course.sizes.between
            await asyncio.sleep(due - time.monotonic())
            if sent and video.arrivals:
                break
            sent.append(group.create_task(send(course, words, due)))
    return [task.result() for task in sent]


def compared(idle: Sequence[float], waits: Sequence[float]) -> dict[str, float]:
    """Return the texts' seconds to the first token beside those of texts that were sent alone."""
    alone, median, worst = statistics.median(idle), statistics.median(waits), max(waits)
    return {
        "idle": alone,
        "median": median,
        "worst": worst,
        "median_ratio": median / alone,
        "worst_ratio": worst / alone,
    }


def partition(events: Iterable[Mapping[str, Any]], ttft: float) -> dict[str, list[float]]:
    """Divide [0, `ttft`) by the stages' ends in a request's trace: a phase lasts until its stage is done.

    Later stages may have begun in it. Without a trace there is one phase.
    """
    spans = [event for event in events if event.get("ph") == "X"]
    if not spans:
        return {UNKNOWN: [0.0, ttft]}
    arrival = min(span["ts"] for span in spans)
    ends = {
        stage: max((span["ts"] + span["dur"] - arrival for span in spans if span["cat"] == stage), default=0.0)
        for stage in STAGES
    }
    edges = list(itertools.accumulate((end * MICROSECOND for end in ends.values()), max))
    edges[-1] = max(ttft, edges[-2])
    return {stage: [start, stop] for stage, start, stop in zip(STAGES, [0.0, *edges], edges, strict=False)}


def phase_at(found: Mapping[str, Sequence[float]], moment: float) -> str:
    """Return the phase at `moment`; the last one for moments after all of them."""
    return next((name for name, (_, stop) in found.items() if moment < stop), list(found)[-1])


def smoothness(streams: Sequence[Answer], video: Answer, settle: int) -> dict[str, Any]:
    """Return the streams' gaps in seconds while the video is worked on, before it, and all their arrivals."""
    steady = max(steady_from(answer, settle) for answer in streams)
    during = timeline.Window(steady, video.start, video.arrivals[0])
    before = timeline.Window(0, steady, video.start)
    gaps = sorted(gap for answer in streams for gap, _ in timeline.gaps(answer.arrivals, during))
    return {
        "idle_gap": statistics.median(
            gap for answer in streams for gap, _ in timeline.gaps(answer.arrivals, before, whole=True)
        ),
        "gap_p50": statistics.median(gaps),
        "gap_p99": gaps[round(0.99 * (len(gaps) - 1))],
        "worst_gap": gaps[-1],
        "streams": [since(video.start, answer.arrivals) for answer in streams],
    }
