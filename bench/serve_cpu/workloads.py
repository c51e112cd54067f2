"""The workloads: requests, and the figures taken from their answers. Times in seconds, rates a second."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timeline
from client import Answer, Client
from media import Media
from memory import watched
from prompts import Prompts

Figures = dict[str, Any]
VIDEO_PIXELS = 50_176  # pixels a frame at most
AT_ONCE = 4  # questions about images at once
STREAMS = 4


@dataclass(frozen=True)
class Sizes:
    """Numbers of tokens and frames of the requests."""

    prompt: int = 128
    alone: int = 128  # tokens of the answer at batch 1
    text: int = 64
    image: int = 16
    video: int = 8
    frames: int = 64
    settle: int = 48  # arrivals of each stream before the videos; the first eighth does not count
    after: int = 16  # arrivals after the videos' first tokens
    endless: int = 4096


QUICK = Sizes(alone=256, text=8, image=4, video=2, frames=8, settle=24, after=4)


class Course:
    """A server and the requests for it: in each round, for each server, the same ones in the same order."""

    def __init__(self, client: Client, media: Media, prompts: Prompts, sizes: Sizes, pid: int) -> None:
        self.client, self.media, self.prompts, self.sizes, self.pid = client, media, prompts, sizes, pid

    def text(self, tokens: int) -> Awaitable[Answer]:
        return self.client.ask(self.prompts.text(self.sizes.prompt), tokens)

    def image(self, path: Path) -> Awaitable[Answer]:
        part = {"type": "image_url", "image_url": {"url": path.as_uri()}}
        return self.client.ask([part, self._question()], self.sizes.image)

    def video(self, path: Path) -> Awaitable[Answer]:
        part = {"type": "video_url", "video_url": {"url": path.as_uri()}}
        return self.client.ask(
            [part, self._question()],
            self.sizes.video,
            media_io_kwargs={"video": {"max_frames": self.sizes.frames}},
            mm_processor_kwargs={"max_pixels": VIDEO_PIXELS},
        )

    def _question(self) -> dict[str, str]:
        return {"type": "text", "text": self.prompts.text(self.sizes.prompt // 2)}


async def warm_up(course: Course) -> Figures:
    """Send one request of each kind."""
    await asyncio.gather(*(course.text(course.sizes.image) for _ in range(STREAMS)))
    await course.image(course.media.images[-1])
    await course.video(course.media.videos[-1])
    return {}


async def decode(course: Course) -> Figures:
    """Measure one text request: the time between its tokens."""
    answer = await course.text(course.sizes.alone)
    return {
        "tbt": statistics.median(timeline.times_per_token(answer.arrivals)),
        "ttft": answer.ttft,
        "prompt_tokens": answer.prompt_tokens,
    }


async def text8(course: Course) -> Figures:
    """Measure eight text requests at once."""
    return rates(await asyncio.gather(*(course.text(course.sizes.text) for _ in range(8))))


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


async def stall(course: Course, videos: Sequence[Path]) -> Figures:
    async with running_streams(course) as streams:
        steady = max(timeline.together(answer.arrivals)[course.sizes.settle // 8][0] for answer in streams)
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


def since(start: float, times: Sequence[float]) -> list[float]:
    """Return the seconds since `start`, in steps of 10 microseconds."""
    return [round(time - start, 5) for time in times]


@contextlib.asynccontextmanager
async def running_streams(course: Course) -> AsyncIterator[list[Answer]]:
    """Start text streams and yield them once settled; they end with the context."""
    answers = [Answer() for _ in range(STREAMS)]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(course.client.ask(course.prompts.text(course.sizes.prompt), course.sizes.endless, answer))
            for answer in answers
        ]
        await grown(answers, [course.sizes.settle] * STREAMS)
        yield answers
        for task in tasks:
            task.cancel()


async def grown(answers: Sequence[Answer], lengths: Sequence[int]) -> None:
    """Wait until something of each answer has arrived as often as its length says."""
    while any(moments(answer) < length for answer, length in zip(answers, lengths, strict=True)):
        await asyncio.sleep(0.02)


def moments(answer: Answer) -> int:
    return len(timeline.together(answer.arrivals))


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
    workload.__name__: workload for workload in (decode, text8, images, video, stall1, stall4, memory)
}
