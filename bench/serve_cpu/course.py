"""The requests that all workloads are made of, by kind and size."""

from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path

from client import Answer, Client
from footage import Media
from prompts import Prompts

VIDEO_PIXELS = 50_176  # pixels a frame at most
LONG_PIXELS = 28 * 28 * 320  # the same for a video of many visual tokens: their files', 299 tokens two frames


@dataclass(frozen=True)
class Sizes:
    """Numbers of tokens and frames of the requests."""

    prompt: int = 128
    long: int = 768  # tokens of a long prompt
    alone: int = 128  # tokens of the answer at batch 1
    text: int = 64
    stream: int = 96  # of answers of which many come at once
    image: int = 16
    video: int = 8
    frames: int = 64
    settle: int = 48  # arrivals of each stream before the videos; the first eighth does not count
    after: int = 16  # arrivals after the videos' first tokens
    endless: int = 4096
    short: int = 100  # tokens of the texts that come in every phase of a video
    between: float = 5.0  # seconds between them: some are there in every phase, and leave most of the cores
    before: int = 8  # such texts alone, one after the other


QUICK = Sizes(alone=256, text=8, stream=16, image=4, video=2, frames=8, settle=24, after=4, between=0.1, before=2)


class Course:
    """A server and the requests for it: in each round, for each server, the same ones in the same order."""

    def __init__(self, client: Client, media: Media, prompts: Prompts, sizes: Sizes, pid: int) -> None:
        self.client, self.media, self.prompts, self.sizes, self.pid = client, media, prompts, sizes, pid

    def text(self, tokens: int) -> Awaitable[Answer]:
        return self.client.ask(self.prompts.text(self.sizes.prompt), tokens)

    def long_prompt(self) -> Awaitable[Answer]:
        return self.client.ask(self.prompts.text(self.sizes.long), 4)

    def stream(self) -> Awaitable[Answer]:
        return self.client.ask(self.prompts.text(self.sizes.prompt // 2), self.sizes.stream)

    def image(self, path: Path) -> Awaitable[Answer]:
        part = {"type": "image_url", "image_url": {"url": path.as_uri()}}
        return self.client.ask([part, self._question()], self.sizes.image)

    def video(self, path: Path, pixels: int = VIDEO_PIXELS, answer: Answer | None = None) -> Awaitable[Answer]:
        part = {"type": "video_url", "video_url": {"url": path.as_uri()}}
        return self.client.ask(
            [part, self._question()],
            self.sizes.video,
            answer,
            media_io_kwargs={"video": {"max_frames": self.sizes.frames}},
            mm_processor_kwargs={"max_pixels": pixels},
        )

    def _question(self) -> dict[str, str]:
        return {"type": "text", "text": self.prompts.text(self.sizes.prompt // 2)}
