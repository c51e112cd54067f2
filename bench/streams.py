"""Text streams beside videos: a daemon, the requests, and the streams' gaps."""

import asyncio
import contextlib
import statistics
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import openai

from unifiedserve.cli.daemon import Daemon, daemon

CLIP = Path(__file__).parents[1] / "unifiedserve" / "samples" / "telescope.mp4"
NO_CACHES = ("--no-prefix-cache", "--visual-cache-mib", "0")  # each question is then as good as new
SETTLE_TOKENS = 40
LAST_TOKENS = 10
MODEL_SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
    "vision_config": {
        "depth": 8,
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_heads": 6,
        "out_hidden_size": 512,
        "fullatt_block_indexes": [3, 7],
    },
}


@dataclass
class Run:
    """One measurement; times in seconds from the arrival of the video requests."""

    label: str
    streams: list[list[float]]  # arrivals of each stream's tokens
    ttfts: list[float]  # times to first token of the videos

    def gaps(self, start: float, stop: float) -> list[float]:
        """Return the gaps of all streams that end in (start, stop], and those that span `stop`."""
        pairs = (pair for tokens in self.streams for pair in pairwise(tokens))
        return [after - before for before, after in pairs if after > start and before < stop]

    @property
    def window(self) -> float:
        """The time when the last video had its first token."""
        return max(self.ttfts)

    @property
    def during(self) -> list[float]:
        return self.gaps(0.0, self.window)

    @property
    def video_ttft(self) -> float:
        return statistics.mean(self.ttfts)

    @property
    def idle_gap(self) -> float:
        return statistics.median(self.gaps(-1e9, 0.0))

    @property
    def median_gap(self) -> float:
        return statistics.median(self.during)

    @property
    def worst_gap(self) -> float:
        return max(self.during)

    @property
    def frozen(self) -> float:
        """Share of the window that a stream spent in gaps over five times the idle one."""
        long = [gap for gap in self.during if gap > 5 * self.idle_gap]
        return min(1.0, sum(long) / len(self.streams) / self.window)


def make_video(path: Path, seconds: int) -> None:
    """Make 640x360 H.264 at 30 frames a second, GOPs of 250 frames, from the sample clip."""
    loop = ["-stream_loop", "-1", "-i", str(CLIP), "-t", str(seconds), "-an"]
    encode = ["-vf", "scale=640:360,fps=30", "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p"]
    subprocess.run(["ffmpeg", "-loglevel", "error", "-y", *loop, *encode, str(path)], check=True)


def serving(model: Path, media: Path, *options: str) -> AbstractContextManager[Daemon]:
    """Start a daemon that may read files below `media`."""
    return daemon(model, "--allowed-local-media-path", str(media), *options)


def gauge(url: str, name: str) -> float:
    """Read a metric without labels."""
    lines = httpx.get(f"{url}/metrics").raise_for_status().text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"unifiedserve:{name} "))


async def measure(label: str, url: str, videos: list[Path], sampling: dict[str, Any], streams: int = 1) -> Run:
    """Run text streams and, when they are steady, ask one question about each video.

    `sampling` are the request's fields that say which frames are taken, and their size.
    """
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=600) as client:
        model = (await client.models.list()).data[0].id
        await ask_video(client, model, videos[0], frames(8))  # warm up
        texts = [_Stream(client, model, number) for number in range(streams)]
        for text in texts:
            await text.beyond(SETTLE_TOKENS)
        start = time.monotonic()
        ttfts = await asyncio.gather(*(ask_video(client, model, video, sampling) for video in videos))
        for text in texts:
            await text.beyond(len(text.tokens) + LAST_TOKENS)
        for text in texts:
            await text.stop()
    return Run(label, [[token - start for token in text.tokens] for text in texts], list(ttfts))


class _Stream:
    """An endless answer, and when its tokens came (monotonic seconds)."""

    def __init__(self, client: openai.AsyncOpenAI, model: str, number: int) -> None:
        self.tokens: list[float] = []
        self._came = asyncio.Event()
        self._task = asyncio.create_task(self._record(text_stream(client, model, number)))

    async def beyond(self, count: int) -> None:
        while len(self.tokens) < count:
            self._came.clear()
            await self._came.wait()

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _record(self, stream: AsyncIterator[float]) -> None:
        async for arrival in stream:
            self.tokens.append(arrival)
            self._came.set()


async def text_stream(client: openai.AsyncOpenAI, model: str, number: int) -> AsyncIterator[float]:
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"Tell me very long story number {number} about a river."}],
        max_tokens=4_000,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    async for _ in stream:
        yield time.monotonic()


def frames(count: int, max_pixels: int | None = None) -> dict[str, Any]:
    """Return the fields of a request that sample `count` frames, each of `max_pixels` at most."""
    fields: dict[str, Any] = {"media_io_kwargs": {"video": {"num_frames": count}}}
    return fields | ({"mm_processor_kwargs": {"max_pixels": max_pixels}} if max_pixels else {})


async def ask_video(client: openai.AsyncOpenAI, model: str, video: Path, sampling: dict[str, Any]) -> float:
    """Ask about the video, and return the seconds to the first token."""
    start = time.monotonic()
    question = {"type": "text", "text": "What happens?"}
    parts: Any = [{"type": "video_url", "video_url": {"url": video.as_uri()}}, question]
    await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": parts}],
        max_tokens=1,
        extra_body=sampling,
    )
    return time.monotonic() - start
