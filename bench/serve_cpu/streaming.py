"""Text streams that run while something else is measured."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import timeline
from client import Answer
from course import Course


@contextlib.asynccontextmanager
async def running_streams(course: Course, count: int) -> AsyncIterator[list[Answer]]:
    """Start text streams and yield them once settled; they end with the context."""
    answers = [Answer() for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(course.client.ask(course.prompts.text(course.sizes.prompt), course.sizes.endless, answer))
            for answer in answers
        ]
        await grown(answers, [course.sizes.settle] * count)
        yield answers
        for task in tasks:
            task.cancel()


async def grown(answers: Sequence[Answer], lengths: Sequence[int]) -> None:
    """Wait until something of each answer has arrived as often as its length says."""
    while any(moments(answer) < length for answer, length in zip(answers, lengths, strict=True)):
        await asyncio.sleep(0.02)


def moments(answer: Answer) -> int:
    return len(timeline.together(answer.arrivals))


def steady_from(answer: Answer, settle: int) -> float:
    """Return when the stream was steady: the first eighth of what came before the videos does not count."""
    return timeline.together(answer.arrivals)[settle // 8][0]


def since(start: float, times: Sequence[float]) -> list[float]:
    """Return the seconds since `start`, in steps of 10 microseconds."""
    return [round(time - start, 5) for time in times]
