"""What the stages' work costs on this machine with a model: requests one at a time, and the daemon's trace of them.

Media are all decoded before they are encoded (--no-overlap), so that no two stages compute at once. Each cost is fitted
to medians, or to all that was measured: what disturbs the machine now and then disturbs what is predicted as well.
Pages that a carrier brings from another memory are measured without the daemon, in pages of the sizes that it has.

    python bench/stage_costs.py CHECKPOINT --json bench/results/stage-costs.json
"""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Annotated

import httpx
import msgspec
import typer
from asking import Asker, Span, Work, visual_tokens
from fitting import fit
from pull_costs import page_bytes, pull_costs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from serve_cpu import checkpoint, footage
from serve_cpu.prompts import Prompts
from streams import NO_CACHES, serving

from unifiedserve.config import EngineConfig
from unifiedserve.scheduling.simulation import StageCosts

PROMPTS = (48, 128, 256, 512, 2048)
BATCHES = (1, 3, 8)
PIXELS = (12_544, 50_176, 200_704)  # of images
FRAMES = 64
ANSWER = 24
ENDLESS = 4000  # tokens
MEDIA = checkpoint.DEFAULT_FOLDER.parent / "media"
VIDEO_SECONDS = footage.VIDEOS[0].seconds


async def measure(asker: Asker, image: Path, video: Path, video_seconds: float, repeats: int) -> StageCosts:
    """Return the costs on a daemon that does nothing else."""
    for work in warm_up(image, video):
        await asker.ask(work)
    costs = await _prefill(asker, repeats) | await _decode(asker, repeats)
    costs |= await _encode(asker, image, repeats)
    return msgspec.convert(costs | await _video(asker, video, video_seconds, costs, repeats), StageCosts)


def warm_up(image: Path, video: Path) -> list[Work]:
    """Return what a daemon is asked before it is measured."""
    return [Work(64, 8), Work(64, 8, image), Work(64, 2, video, FRAMES)]


async def _prefill(asker: Asker, repeats: int) -> dict[str, float]:
    """Measure lone texts of several lengths; what is not prefill of their first tokens' time is the way and back."""
    rows, seconds, around, messages = [], [], [], []
    for tokens in PROMPTS:
        asked = [await asker.ask(Work(tokens, 2)) for _ in range(repeats)]
        traces = [await asker.spans(each) for each in asked]
        passes = [named(trace, "prefill", "prefill") for trace in traces]
        for spans in passes:
            for span, stop in zip(spans, accumulate(span.tokens for span in spans), strict=True):
                rows.append([1, span.tokens, span.tokens * (stop - span.tokens / 2)])
                seconds.append(span.seconds)
        around += [a.ttft - (spans[-1].end - spans[0].start) for a, spans in zip(asked, passes, strict=True)]
        messages += [
            named(trace, "decode", "queue")[0].start - spans[-1].end
            for trace, spans in zip(traces, passes, strict=True)
        ]
    first, token, context = fit(rows, seconds)
    message = max(0.0, median(messages))
    intake = max(0.0, median(around) - 2 * message)
    return {
        "prefill_pass": first,
        "prompt_token": token,
        "prompt_context": context,
        "message": message,
        "reply": message,
        "intake": intake,
    }


async def _decode(asker: Asker, repeats: int) -> dict[str, float]:
    """Measure the time from step to step of some sequences, as many as there happen to be, of several contexts."""
    steps: dict[tuple[int, int], list[float]] = {}
    for batch, context in [*((batch, 64) for batch in BATCHES), (1, 2048)]:
        for _ in range(repeats):
            asked = await asyncio.gather(*(asker.ask(Work(context, ANSWER)) for _ in range(batch)))
            for before, after in pairwise(named(await asker.spans(asked[-1]), "decode", "decode")):
                if before.requests == after.requests:
                    steps.setdefault((before.requests, context), []).append(after.start - before.start)
    rows = [[1, batch, batch * (context + ANSWER / 2)] for batch, context in steps]
    first, sequence, context_token = fit(rows, [median(seconds) for seconds in steps.values()])
    lone = await asker.gauge("slo_tbt_seconds") / EngineConfig().scheduling.seconds_between_tokens(1.0)
    return {"decode_pass": first, "sequence": sequence, "context_token": context_token, "lone_step": lone}


async def _encode(asker: Asker, image: Path, repeats: int) -> dict[str, float]:
    """Measure lone images of several sizes."""
    rows, seconds, decoded = [], [], []
    for pixels in PIXELS:
        work = Work(64, 1, image, pixels=pixels)
        asked = [await asker.ask(work) for _ in range(repeats)]
        traces = [await asker.spans(each) for each in asked]
        rows.append([1, visual_tokens(work, asked[0])])
        seconds.append(median(named(trace, "encode", "encode")[0].seconds for trace in traces))
        decoded += [named(trace, "vision", "decode")[0].seconds for trace in traces]
    first, token = fit(rows, seconds)
    return {"encode_batch": first, "visual_token": token, "image": median(decoded)}


async def _video(
    asker: Asker, video: Path, video_seconds: float, costs: dict[str, float], repeats: int
) -> dict[str, float]:
    """Measure a lone video, then one beside a stream: decode takes half of the cores from the encoder, which waits."""
    around, analyses, cores, steps, wastes = [], [], [], [], []
    for _ in range(repeats):
        asked = await asker.ask(Work(64, 1, video, FRAMES))
        spans = await asker.spans(asked)
        queue, units = named(spans, "vision", "queue")[0], named(spans, "vision", "decode")
        around.append(asked.ttft - (named(spans, "prefill", "prefill")[-1].end - queue.start))
        analyses.append(units[0].start - queue.end)
        cores.append(sum(unit.seconds for unit in units) / video_seconds)
        stream = asyncio.create_task(asker.ask(Work(64, ENDLESS)))
        beside = named(await asker.spans(await asker.ask(Work(64, 1, video, FRAMES))), "encode", "encode")
        stream.cancel()
        decoding = [s for s in named(await asker.spans(), "decode", "decode") if s.start > beside[0].start]
        steps += [s.seconds for s in decoding if s.end < beside[-1].end]
        wastes.append(_waste(named(spans, "encode", "encode"), beside, decoding))
    lone = costs["decode_pass"] + costs["sequence"] + 500 * costs["context_token"]
    return {
        "medium": max(0.0, median(around) - costs["intake"] - 2 * costs["message"]),
        "analysis": max(0.0, median(analyses)),
        "video_second": median(cores),
        "half": max(1.0, median(steps) / lone),
        "waste": median(wastes),
    }


def _waste(alone: Sequence[Span], beside: Sequence[Span], decoding: Sequence[Span]) -> float:
    """Return what the encoder loses, beyond the cores that decode takes, of what it gets in proportion to the rest.

    While decode runs it gets the `share` of the cores, and the same batches are done as alone.
    """
    cores = len(os.sched_getaffinity(0))
    share = 1 - (cores // 2 or 1) / cores
    shared = sum(max(0.0, min(a.end, b.end) - max(a.start, b.start)) for a in beside for b in decoding)
    if not shared or not share:
        return 0.0
    done = sum(a.seconds for a in alone) - (sum(b.seconds for b in beside) - shared)
    return min(1.0, max(0.0, 1 - done / (shared * share)) / (1 - share))


def named(spans: Sequence[Span], stage: str, name: str) -> list[Span]:
    return [span for span in spans if (span.stage, span.name) == (stage, name)]


def show(console: Console, costs: StageCosts) -> None:
    table = Table("work", "ms", title="Costs of stages")
    table.caption = f"half {costs.half:.2f}, waste {costs.waste:.2f}, {costs.encoder_layers} layers of the encoder"
    for name in costs.__struct_fields__:
        if name not in ("half", "waste", "encoder_layers"):
            table.add_row(name, f"{getattr(costs, name) * 1e3:.5g}")
    console.print(table)


async def measured(
    url: str, model: Path, found: footage.Media, repeats: int, answered: Callable[[], object]
) -> StageCosts:
    async with httpx.AsyncClient(base_url=url, timeout=300) as http:
        asker = Asker(http, Prompts(model), answered)
        return await measure(asker, found.images[0], found.videos[0], VIDEO_SECONDS, repeats)


def questions(repeats: int) -> int:
    """Return how many questions are answered in all: to warm up, for texts, streams, images and videos."""
    return 3 + repeats * (len(PROMPTS) + sum(BATCHES) + 1 + len(PIXELS) + 2)


def encoder_layers(model: Path) -> int:
    """Return how many layers a checkpoint's vision encoder has, under the names of most families; 1 if under none."""
    vision = json.loads((model / "config.json").read_text()).get("vision_config", {})
    return int(vision.get("depth") or vision.get("num_hidden_layers") or 1)


def main(
    model: Annotated[Path, typer.Argument(help="Checkpoint")] = checkpoint.DEFAULT_FOLDER,
    media_folder: Annotated[Path, typer.Option("--media", help="Where the videos are, or are made")] = MEDIA,
    placement: Annotated[str, typer.Option(help="A placement, as of the daemon")] = "shared",
    carrier: Annotated[str, typer.Option(help="What brings pages from one memory to another")] = "shared",
    repeats: Annotated[int, typer.Option(min=1, help="Of each request")] = 2,
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the costs")] = Path(
        "bench/results/stage-costs.json"
    ),
) -> None:
    """Measure what the stages' work costs."""
    console = Console()
    found = footage.ensure(media_folder, console, quick=False)
    options = (*NO_CACHES, "--no-overlap", "--placement", placement)
    with serving(model, media_folder, *options) as daemon, Progress(console=console, transient=True) as progress:
        task = progress.add_task("questions", total=questions(repeats))
        costs = asyncio.run(measured(daemon.url, model, found, repeats, lambda: progress.advance(task)))
        sizes = page_bytes(daemon.process.pid)
    costs = msgspec.structs.replace(costs, encoder_layers=encoder_layers(model), **pull_costs(carrier, sizes))
    show(console, costs)
    costs.save(json_file)


if __name__ == "__main__":
    typer.run(main)
