"""What clients ask while workers die: streams of text, images and videos, each with the one answer that is right."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import openai

from unifiedserve import samples

_SAMPLES = Path(samples.__file__).parent
_LEAVES = 0.1  # of the clients leave in the middle of their answers
_DEADLINE = 120.0  # seconds
_FRAMES = (4, 6, 8, 10, 12, 14, 16, 20, 24)  # of videos
_MANY_FRAMES = (40, 48, 56, 64)  # of those that are larger than small buffers


class Question(NamedTuple):
    """A question, with how many tokens its answer has, and how often it is asked beside the others."""

    kind: str
    content: list[dict[str, Any]]
    tokens: int
    weight: float
    frames: int | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """What tells it from all others."""
        return self.kind, self.frames


class Asked(msgspec.Struct):
    """What came of a question. Times are seconds of the monotonic clock.

    `status` is "exact", "left", "wrong" or "error: …"; `gap` is the longest time between two pieces, which ended `at`.
    """

    kind: str
    asked: float
    ended: float
    status: str
    ttft: float | None = None
    gap: float | None = None
    at: float | None = None


def questions() -> list[Question]:
    """Return all kinds: a stream, texts, an image, and videos of many lengths."""
    image = {"type": "image_url", "image_url": {"url": _data("shapes.jpg", "image/jpeg")}}
    video = {"type": "video_url", "video_url": {"url": _data("shapes-motion.mp4", "video/mp4")}}
    return [
        Question("stream", [_text("Tell of a river, a boat and a bird.")], 400, 3),
        Question("text", [_text("What is a star?")], 40, 4),
        Question("long text", [_text("The star is white. " * 60)], 60, 2),
        Question("image", [image, _text("What is this?")], 30, 2),
        *[Question("video", [video, _text("What color is the star?")], 30, 2 / len(_FRAMES), n) for n in _FRAMES],
        *[Question("large video", [video, _text("What moves?")], 20, 1 / len(_MANY_FRAMES), n) for n in _MANY_FRAMES],
    ]


class Clients:
    """Users of a server: each asks, reads the answer, thinks, and asks again."""

    def __init__(self, url: str, seed: int, thinking: float) -> None:
        """They think so many seconds in the mean."""
        self.asked: list[Asked] = []
        self._openai = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=_DEADLINE, max_retries=0)
        self._questions = questions()
        self._right: dict[tuple[str, int | None], str] = {}
        self._seed = seed
        self._thinking = thinking
        self._model = ""

    async def learn(self) -> None:
        """Ask each question once, of a server that does nothing else: these answers are right."""
        self._model = (await self._openai.models.list()).data[0].id
        for question in self._questions:
            self._right[question.key] = "".join([piece async for piece in self._pieces(question)])

    async def run(self, count: int) -> None:
        """Have so many users, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(self._user(Random(f"{self._seed}:{number}")))

    async def _user(self, random: Random) -> None:
        weights = [question.weight for question in self._questions]
        while True:
            await asyncio.sleep(random.expovariate(1 / self._thinking))
            question = random.choices(self._questions, weights)[0]
            leaves = random.randrange(question.tokens) if random.random() < _LEAVES else None
            self.asked.append(await self._ask(question, leaves))

    async def _ask(self, question: Question, leaves: int | None) -> Asked:
        asked, times, said = time.monotonic(), list[float](), ""
        try:
            async with aclosing(self._pieces(question)) as pieces:
                async for piece in pieces:
                    times.append(time.monotonic())
                    said += piece
                    if leaves is not None and len(times) > leaves:
                        break
            status = self._judge(question, said, left=leaves is not None and len(times) > leaves)
        except openai.OpenAIError as error:
            status = f"error: {getattr(error, 'status_code', '')} {error}"[:300]
        gap, at = max(((later - sooner, later) for sooner, later in pairwise(times)), default=(None, None))
        return Asked(question.kind, asked, time.monotonic(), status, times[0] - asked if times else None, gap, at)

    def _judge(self, question: Question, said: str, *, left: bool) -> str:
        right = self._right[question.key]
        if left:
            return "left" if right.startswith(said) else f"wrong: {said!r}, not {right!r}"
        return "exact" if said == right else f"wrong: {said!r}, not {right!r}"

    async def _pieces(self, question: Question) -> AsyncIterator[str]:
        """Yield the text of an answer, piece by piece."""
        extra: dict[str, Any] = {"ignore_eos": True}
        if question.frames:
            extra["media_io_kwargs"] = {"video": {"num_frames": question.frames}}
        stream = await self._openai.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": question.content}],  # type: ignore[list-item, misc]
            max_tokens=question.tokens,
            temperature=0,
            stream=True,
            extra_body=extra,
        )
        async with stream:
            async for chunk in stream:
                for choice in chunk.choices:
                    if choice.delta.content:
                        yield choice.delta.content


def errors(asked: Sequence[Asked]) -> list[Asked]:
    """Return what ended neither with its right answer nor because its client left."""
    return [each for each in asked if each.status not in ("exact", "left")]


def _text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def _data(name: str, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode((_SAMPLES / name).read_bytes()).decode()}"
