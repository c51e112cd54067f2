"""transformers on the same requests, in this process: it has no server that batches for such a model.

Requests that wait at the same time go through `generate` as one batch, and the next ones wait until it ends. With
continuous batching, which transformers has for text alone, they come and go.
"""

import asyncio
import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlparse

import footage
import torch
import typer
from client import Answer
from course import QUICK, Course, Sizes
from memory import watched
from PIL import Image
from prompts import Prompts
from rich.console import Console
from workloads import WORKLOADS, Figures, warm_up

CONTEXT = 16_384
PAGE = 256
OPERATOR = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def load(checkpoint: Path) -> tuple[Any, Any]:
    """Load the model in bfloat16 and its processor, whose video part needs torchvision to be importable."""
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", OPERATOR)
    import torchvision  # noqa: F401
    import transformers

    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.bfloat16).eval()
    processor = transformers.AutoProcessor.from_pretrained(checkpoint)
    processor.tokenizer.padding_side = "left"
    model.generation_config.eos_token_id = None
    return model, processor


@dataclasses.dataclass
class Waiting:
    prompt: str
    files: dict[str, list[str]]  # "images" or "videos"
    tokens: int
    options: dict[str, Any]
    answer: Answer
    done: asyncio.Future[None]

    def fits(self, other: "Waiting") -> bool:
        """Say whether both can be of one batch."""
        return (self.tokens, self.options, list(self.files)) == (other.tokens, other.options, list(other.files))


class Generate:
    """A client that answers with transformers' `generate`."""

    def __init__(self, checkpoint: Path) -> None:
        self._model, self._processor = load(checkpoint)
        self._queue: list[Waiting] = []
        self._runner: asyncio.Task[None] | None = None

    async def ask(self, content: str | list[dict[str, Any]], tokens: int, **options: Any) -> Answer:
        prompt, files = plain(self._processor, content)
        done = asyncio.get_running_loop().create_future()
        waiting = Waiting(prompt, files, tokens, options, Answer(), done)
        self._queue.append(waiting)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run())
        await done
        return waiting.answer

    async def _run(self) -> None:
        await asyncio.sleep(0)  # those that are sent at once are there now
        while self._queue:
            batch = [waiting for waiting in self._queue if waiting.fits(self._queue[0])]
            self._queue = [waiting for waiting in self._queue if waiting not in batch]
            try:
                await asyncio.to_thread(self._generate, batch)
            except Exception as error:
                for waiting in batch:
                    waiting.done.set_exception(error)
            else:
                for waiting in batch:
                    waiting.done.set_result(None)
            await asyncio.sleep(0)

    @torch.inference_mode()
    def _generate(self, batch: list[Waiting]) -> None:
        files: dict[str, list[Any]] = {}
        for waiting in batch:
            for kind, paths in waiting.files.items():
                files.setdefault(kind, []).extend(map(Image.open, paths) if kind == "images" else paths)
        inputs = self._processor(
            text=[waiting.prompt for waiting in batch],
            padding=True,
            return_tensors="pt",
            **files,
            **({"videos_kwargs": video_options(batch[0].options)} if "videos" in files else {}),
        )
        for waiting, mask in zip(batch, inputs["attention_mask"], strict=True):
            waiting.answer.prompt_tokens = int(mask.sum())
        self._model.generate(
            **inputs,
            max_new_tokens=batch[0].tokens,
            do_sample=False,
            stopping_criteria=[stamp([waiting.answer for waiting in batch])],
        )


class ContinuousBatching:
    """A client for text alone that answers with transformers' continuous batching."""

    def __init__(self, checkpoint: Path) -> None:
        from transformers import ContinuousBatchingConfig

        model, self._processor = load(checkpoint)
        config = ContinuousBatchingConfig(
            page_size=PAGE, num_blocks=CONTEXT // PAGE, max_batch_tokens=512, allow_block_sharing=False
        )
        model.generation_config.do_sample = False
        self._manager = model.init_continuous_batching(continuous_batching_config=config)
        self._manager.start()

    async def ask(self, content: str, tokens: int) -> Answer:
        prompt, _ = plain(self._processor, content)
        ids = self._processor.tokenizer(prompt)["input_ids"]
        answer = Answer(prompt_tokens=len(ids))
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def receive(output: Any) -> None:
            answer.arrivals += [time.monotonic()] * (len(output.generated_tokens) - len(answer.arrivals))
            if output.is_finished():
                failures.append(output.error)
                loop.call_soon_threadsafe(done.set)

        failures: list[str | None] = []
        name = f"request-{id(answer)}"
        self._manager.register_result_handler(name, receive)
        self._manager.add_request(ids, request_id=name, streaming=True, max_new_tokens=tokens)
        await done.wait()
        if failures[0] is not None:
            raise RuntimeError(failures[0])
        return answer


def plain(processor: Any, content: str | list[dict[str, Any]]) -> tuple[str, dict[str, list[str]]]:
    """Return the prompt as text, and the paths of its images or videos."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    files: dict[str, list[str]] = {}
    said = []
    for part in parts:
        kind = part["type"].removesuffix("_url")
        said.append({"type": kind, "text": part.get("text", "")})
        if kind != "text":
            files.setdefault(f"{kind}s", []).append(unquote(urlparse(part[part["type"]]["url"]).path))
    messages = [{"role": "user", "content": said}]
    prompt: str = processor.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return prompt, files


def video_options(options: dict[str, Any]) -> dict[str, Any]:
    return options["media_io_kwargs"]["video"] | options["mm_processor_kwargs"] | {"do_sample_frames": True}


def stamp(answers: list[Answer]) -> Callable[..., torch.Tensor]:
    """Make a stopping criterion that never stops, but notes the time of each token."""

    def note(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        now = time.monotonic()
        for answer in answers:
            answer.arrivals.append(now)
        return torch.zeros(len(ids), dtype=torch.bool)

    return note


async def peak_memory(course: Course) -> Figures:
    """Measure the peak memory while one question about a video is answered."""
    with watched(os.getpid()) as peak:
        peak.look()
        idle = peak.bytes
        await course.video(course.media.videos[-1])
    return {"idle": idle, "peak": peak.bytes}


CLIENTS = {"generate": Generate, "continuous": ContinuousBatching}


async def run(client: Any, course: Course, names: list[str]) -> None:
    """Print a line of JSON for each workload, as soon as it is done."""
    if isinstance(client, Generate):
        await warm_up(course, names)
    else:
        await course.text(course.sizes.image)
    for name in names:
        workload = peak_memory if name == "memory" else WORKLOADS[name]
        print(json.dumps({name: await workload(course)}), flush=True)


def main(
    how: Annotated[str, typer.Argument(help=" or ".join(CLIENTS))],
    checkpoint: Annotated[Path, typer.Argument()],
    folder: Annotated[Path, typer.Argument(help="Of the videos and images")],
    names: Annotated[list[str], typer.Argument(help="Workloads")],
    quick: Annotated[bool, typer.Option()] = False,
) -> None:
    """Run the workloads."""
    files = footage.ensure(folder, Console(stderr=True), quick)
    client: Any = CLIENTS[how](checkpoint)
    course = Course(client, files, Prompts(checkpoint), QUICK if quick else Sizes(), os.getpid())
    asyncio.run(run(client, course, names))
    if threading.active_count() > 1:
        os._exit(0)  # continuous batching's thread does not end by itself


if __name__ == "__main__":
    typer.run(main)
