"""How long a text stream freezes while a two-minute video is decoded, encoded and prefilled.

One daemon at a time, the placements in turn, same model, same requests. A stream of text tokens runs; when it is
steady, a question about the video arrives; the stream's gaps are counted until the video's first token is there.

    python bench/stall.py --repeats 3 --json bench/results/stall.json --plot bench/results/stall.png
"""

import asyncio
import contextlib
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import openai
import typer
from machine import describe_machine
from rich.console import Console
from rich.progress import track
from rich.table import Table

from unifiedserve.config import PLACEMENTS
from unifiedserve.models.tiny import make_checkpoint

CLIP = Path(__file__).parents[1] / "unifiedserve" / "samples" / "telescope.mp4"
SETTLE_TOKENS = 40
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
    """One measurement; times in seconds from the arrival of the video request."""

    placement: str
    tokens: list[float]  # arrivals of the stream's tokens
    video_ttft: float

    def gaps(self, start: float, stop: float) -> list[float]:
        """Gaps that end in (start, stop], and the one that spans `stop`."""
        pairs = zip(self.tokens, self.tokens[1:], strict=False)
        return [after - before for before, after in pairs if after > start and before < stop]

    @property
    def idle_gap(self) -> float:
        return statistics.median(self.gaps(-1e9, 0.0))

    @property
    def worst_gap(self) -> float:
        return max(self.gaps(0.0, self.video_ttft))

    @property
    def frozen(self) -> float:
        """Share of the window spent in gaps over five times the idle one."""
        long = [gap for gap in self.gaps(0.0, self.video_ttft) if gap > 5 * self.idle_gap]
        return min(1.0, sum(long) / self.video_ttft)


def make_video(path: Path) -> None:
    """Two minutes of 640x360 H.264 at 30 frames a second, GOPs of 250 frames, from the sample clip."""
    loop = ["-stream_loop", "-1", "-i", str(CLIP), "-t", "120", "-an"]
    encode = ["-vf", "scale=640:360,fps=30", "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p"]
    subprocess.run(["ffmpeg", "-loglevel", "error", "-y", *loop, *encode, str(path)], check=True)


@contextlib.contextmanager
def daemon(placement: str, model: Path, media: Path, port: int) -> Iterator[str]:
    """The base URL of a running daemon."""
    options = ["--placement", placement, "--port", str(port), "--allowed-local-media-path", str(media)]
    process = subprocess.Popen(
        [sys.executable, "-m", "unifiedserve.cli", "serve", str(model), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            if process.poll() is not None:
                raise SystemExit(f"the daemon ended with code {process.returncode}")
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{url}/health").raise_for_status()
                break
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


async def measure(placement: str, url: str, video: Path, frames: int) -> Run:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=600) as client:
        model = (await client.models.list()).data[0].id
        await ask_video(client, model, video, 8)  # warm up
        tokens: list[float] = []
        settled = asyncio.Event()
        stream = asyncio.create_task(_record(text_stream(client, model), tokens, settled))
        await settled.wait()
        start = time.monotonic()
        ttft = await ask_video(client, model, video, frames)
        count = len(tokens)
        while len(tokens) < count + 10:
            await asyncio.sleep(0.01)
        stream.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stream
    return Run(placement, [token - start for token in tokens], ttft)


async def _record(stream: AsyncIterator[float], tokens: list[float], settled: asyncio.Event) -> None:
    async for arrival in stream:
        tokens.append(arrival)
        if len(tokens) == SETTLE_TOKENS:
            settled.set()


async def text_stream(client: openai.AsyncOpenAI, model: str) -> AsyncIterator[float]:
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Tell me a very long story about a river."}],
        max_tokens=20_000,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    async for _ in stream:
        yield time.monotonic()


async def ask_video(client: openai.AsyncOpenAI, model: str, video: Path, frames: int) -> float:
    """Seconds to the first token of a question about the video."""
    start = time.monotonic()
    question = {"type": "text", "text": "What happens?"}
    parts: Any = [{"type": "video_url", "video_url": {"url": video.as_uri()}}, question]
    await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": parts}],
        max_tokens=1,
        extra_body={"media_io_kwargs": {"video": {"num_frames": frames}}},
    )
    return time.monotonic() - start


def summary(runs: list[Run]) -> dict[str, dict[str, float]]:
    """Medians over the repeats, by placement."""
    return {
        placement: {
            name: statistics.median(getattr(run, name) for run in runs if run.placement == placement)
            for name in ("idle_gap", "worst_gap", "frozen", "video_ttft")
        }
        for placement in dict.fromkeys(run.placement for run in runs)
    }


def show(console: Console, results: dict[str, dict[str, float]], runs: list[Run]) -> None:
    table = Table(title="A text stream while a 2-minute video arrives (medians; worst gap: min-max)")
    for column in ("placement", "idle gap ms", "worst gap ms", "min-max", "frozen %", "video TTFT s"):
        table.add_column(column, justify="right")
    for placement, row in results.items():
        worst = sorted(run.worst_gap * 1e3 for run in runs if run.placement == placement)
        table.add_row(
            placement,
            f"{row['idle_gap'] * 1e3:.1f}",
            f"{row['worst_gap'] * 1e3:.0f}",
            f"{worst[0]:.0f}-{worst[-1]:.0f}",
            f"{row['frozen'] * 100:.0f}",
            f"{row['video_ttft']:.2f}",
        )
    console.print(table)


def draw(path: Path, runs: list[Run]) -> None:
    """Every token of the streams as a tick, and when the video was being worked on."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    first = {run.placement: run for run in reversed(runs)}
    figure, axes = pyplot.subplots(len(first), 1, sharex=True, figsize=(10, 1.6 * len(first) + 1))
    for axis, (placement, run) in zip(axes, first.items(), strict=True):
        axis.axvspan(0, run.video_ttft, color="tab:orange", alpha=0.2, label="video request until its first token")
        axis.vlines(run.tokens, 0, 1, color="tab:blue", linewidth=0.6, label="tokens of the text stream")
        axis.set_title(f"{placement}: worst gap {run.worst_gap * 1e3:.0f} ms", loc="left", fontsize=10)
        axis.set_yticks([])
    axes[-1].set_xlabel("seconds from the arrival of the video request")
    axes[0].legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(
    repeats: Annotated[int, typer.Option(help="Runs of each placement, in turn")] = 3,
    frames: Annotated[int, typer.Option(help="Frames sampled from the video")] = 120,
    port: Annotated[int, typer.Option(help="Port for the daemons")] = 8719,
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the figures")] = Path(
        "bench/results/stall.json"
    ),
    plot: Annotated[Path, typer.Option(help="Where to save the picture")] = Path("bench/results/stall.png"),
) -> None:
    """Compare the placements: worst gap of a running text stream while a video question arrives."""
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "two_minutes.mp4"
        model = make_checkpoint(Path(folder) / "model", sizes=MODEL_SIZES)
        make_video(video)
        runs = []
        for placement in track(list(PLACEMENTS) * repeats, "measuring", console=console):
            with daemon(placement, model, Path(folder), port) as url:
                runs.append(asyncio.run(measure(placement, url, video, frames)))
    results = summary(runs)
    show(console, results, runs)
    json_file.parent.mkdir(parents=True, exist_ok=True)
    json_file.write_text(
        json.dumps(
            {
                "command": " ".join(["python", *sys.argv]),
                "machine": describe_machine(),
                "python": platform.python_version(),
                "medians": results,
                "runs": [asdict(run) for run in runs],
            }
        )
    )
    draw(plot, runs)


if __name__ == "__main__":
    typer.run(main)
