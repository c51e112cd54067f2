"""Run `flashcodec bench`: FlashCodec and the other decoders on this machine, in turn, on a file of one's own."""

import json
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from flashcodec.cli import peers
from flashcodec.cli.console import heading, plain_table, progress_bar, stdout
from flashcodec.cli.video import File, Fps, IndexList, Json, NumFrames, chosen_frames, open_video

_CLOSE = 3.0
"""Mean difference of 8-bit values up to which frames are the same but for rounding in the colour conversion."""

Rounds = Annotated[
    int,
    typer.Option(
        "--rounds", min=1, max=1000, metavar="N", help="Runs of each decoder; the times are medians over them"
    ),
]


def bench(
    file: File,
    frames: NumFrames = None,
    fps: Fps = None,
    indices: IndexList = None,
    rounds: Rounds = 5,
    json: Json = False,
) -> None:
    """Compare FlashCodec with the decoders installed here: TorchCodec, PyAV, decord, OpenCV.

    Each decoder reads the same frames at native size as RGB, in turn, round by round. Its frames are compared with
    FlashCodec's. "Split" means one single-threaded decoder for each core.

    \b
    Compare on 64 frames at even distances, in five rounds:
      flashcodec bench lecture.mp4
    Compare on one frame a second, as JSON for a script:
      flashcodec bench lecture.mp4 --fps 1 --rounds 3 --json
    """
    targets = chosen_frames(open_video(file, None), frames, fps, indices).tolist()
    results = compare(file, targets, rounds)
    if json:
        report = {"file": file, "frames": targets, "rounds": rounds, "results": [r.as_dict() for r in results]}
        print(_dump(report))
    else:
        console = stdout()
        heading(console, f"{len(targets)} frames of {file}, medians of {rounds} rounds")
        console.print(_table(results))


@dataclass
class Result:
    """Hold a decoder's result. `wall` and `cpu` hold seconds of each round; `error` is why the decoder fell out."""

    name: str
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    frames: str = ""
    right: bool = True
    error: str | None = None
    speedup: float | None = None
    """Median of the paired ratios of times, this decoder's to FlashCodec's."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(path: str, indices: list[int], rounds: int) -> list[Result]:
    """Return FlashCodec's result first, then the peers'."""
    own = peers.Peer("FlashCodec", "flashcodec", peers.flashcodec)
    contestants = [Contestant(peer) for peer in (own, *peers.present())]
    try:
        with progress_bar() as progress:
            task = progress.add_task("", total=(rounds + 1) * len(contestants))
            for round_number in range(rounds + 1):
                for contestant in contestants:
                    progress.update(task, description=contestant.result.name)
                    if round_number == 0:
                        contestant.check(path, indices)
                    else:
                        contestant.run(path, indices)
                    progress.advance(task)
    finally:
        for contestant in contestants:
            contestant.close()
    results = [contestant.result for contestant in contestants]
    for result in results:
        pairs = zip(result.wall, results[0].wall, strict=False)
        result.speedup = statistics.median(theirs / ours for theirs, ours in pairs) if result.wall else None
    return results


class Contestant:
    """Run a decoder in a process of its own: it may crash, and its libraries do not meet the others'."""

    def __init__(self, peer: peers.Peer) -> None:
        self.result = Result(peer.name)
        self._read = peer.read
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_silence)

    def check(self, path: str, indices: list[int]) -> None:
        """Compare the frames, which warms the decoder up, too."""
        found = self._call(_difference, path, indices)
        if found is not None:
            self.result.frames, self.result.right = found

    def run(self, path: str, indices: list[int]) -> None:
        times = self._call(_timed, path, indices)
        if times is not None:
            self.result.wall.append(times[0])
            self.result.cpu.append(times[1])

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _call(self, function: Any, path: str, indices: list[int]) -> Any:
        if self.result.error is not None:
            return None
        try:
            return self._pool.submit(function, self._read, path, indices).result()
        except BrokenProcessPool:
            self.result.error = "crashed"
        except Exception as error:  # whatever a decoder may raise
            self.result.error = f"{type(error).__name__}: {error}"
        return None


def _silence() -> None:
    """Silence FFmpeg, whose messages would run into the table."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _timed(read: peers.Read, path: str, indices: list[int]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    read(path, indices)
    return time.perf_counter() - wall, time.process_time() - cpu


def _difference(read: peers.Read, path: str, indices: list[int]) -> tuple[str, bool]:
    """Tell the difference in words, and whether these are the right frames."""
    ours, theirs = peers.flashcodec(path, indices), read(path, indices)
    if ours.shape != theirs.shape:
        return f"shape {theirs.shape} instead of {ours.shape}", False
    means = [float(np.abs(a.astype(np.int16) - b).mean()) for a, b in zip(ours, theirs, strict=True)]
    wrong = sum(mean > _CLOSE for mean in means)
    if wrong:
        return f"{wrong} of {len(means)} differ, by up to {max(means):.1f} on average", False
    return "equal" if max(means) == 0 else f"equal but for rounding ({max(means):.2f})", True


def _dump(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=2)


def _table(results: list[Result]) -> Table:
    table = plain_table()
    table.add_column("decoder")
    for name in ("wall s", "CPU s", "FlashCodec is"):
        table.add_column(name, justify="right")
    table.add_column("frames", overflow="fold")
    for result in results:
        table.add_row(Text(result.name), *_times(result), _verdict(result))
    return table


def _times(result: Result) -> list[str]:
    if result.error is not None or not result.wall:
        return ["–"] * 3
    faster = "" if result.name == "FlashCodec" else f"{result.speedup:.2f}×"
    return [f"{statistics.median(result.wall):.3f}", f"{statistics.median(result.cpu):.3f}", faster]


def _verdict(result: Result) -> Text:
    if result.error is not None:
        return Text(result.error, "red")
    return Text(result.frames, "green" if result.right else "red")
