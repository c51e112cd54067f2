"""FlashCodec beside other decoders: the same frames of the same files, in turn, each in a process of its own.

python bench/decode/install_peers.py
python bench/decode/run.py
"""

import dataclasses
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import typer
from checking import reference, wrong_frames
from contestant import Task
from entrants import Entrants
from measure import Contender, Result
from peers import FOLDER
from peers.flashcodec_patches import STD
from report import RESULTS, write
from results import Figures, RowResult, is_ours, joined
from rich.console import Console
from rich.progress import Progress
from tasks import DEFAULT_ROWS, GPU_ROWS, OTHER_ROWS, TASKS, Row
from videos import CLIPS, DEFAULT_FOLDER, ensure

from flashcodec import FlashCodec, analyse_bitstream
from unifiedserve.doctor.machine import describe_machine

CORES = len(os.sched_getaffinity(0))
QUICK_CLIPS = 8
WORTH_SAVING = 5.0  # seconds; whoever is faster runs in every round


@dataclasses.dataclass(frozen=True)
class Options:
    rounds: int
    patience: float
    timeout: float
    entrants: Entrants
    installed: Path
    references: Path


class Course:
    """One row: its files, the right pictures of them, and the contestants at work on it."""

    def __init__(self, row: Row, paths: list[Path], options: Options, scratch: Path) -> None:
        self._row, self._paths, self._options, self._scratch = row, paths, options, scratch
        self._references = [reference(path, options.references) for path in paths]
        self._indices = row.indices([len(pictures) for pictures in self._references])
        self._contestants = options.entrants.of(row.task)
        asked = sum(map(len, self._indices))
        self.result = RowResult(row.title, row.task.meaning, row.video, asked)

    @contextmanager
    def contenders(self) -> Iterator[tuple[Contender, dict[str, Contender]]]:
        """Start the processes: that of the floor, and the contestants' by name."""
        with ExitStack() as stack:
            started = {}
            for name, contestant in self._contestants.items():
                started[name] = Contender(contestant, self._options.installed, self._options.timeout)
                stack.callback(started[name].close)
                self.result.figures[name] = Figures(contestant.note, failure=started[name].failure)
            floor = Contender(self._options.entrants.floor, self._options.installed, self._options.timeout)
            stack.callback(floor.close)
            yield floor, started

    def run_floor(self, floor: Contender) -> None:
        if self._row.task.kind == "analysis":  # decodes nothing
            return
        if floor.failure is None and (result := floor.run(self._task("floor", "floor", self._right_indices(True)))):
            floors = self.result.floors
            floors.walls.append(result.pop("wall"))
            floors.cpus.append(result.pop("cpu"))
            vars(floors).update(result)

    def run(self, name: str, contender: Contender) -> None:
        """Run a round of one contestant unless it has failed or was too slow; look at the first round's frames."""
        figures = self.result.figures[name]
        if contender.failure is not None or figures.slow:
            return
        task = self._row.task
        snapped = is_ours(name) and task.kind == "frames" and self._options.entrants.device == "cpu"
        function = task.ours if snapped else self._contestants[name].function
        kept = self._scratch / "kept.npy"
        first = not figures.walls
        run = self._task(task.kind, function, self._indices)
        result = contender.run(dataclasses.replace(run, keep=str(kept) if first else None))
        figures.failure = contender.failure
        if result is None:
            return
        figures.walls.append(result["wall"])
        figures.cpus.append(result["cpu"])
        if first:
            figures.peak, figures.handed_out = result["peak"], result["bytes"]
            self._look_at(name, result, np.load(kept, mmap_mode="r"))

    def leave_out_the_slow(self) -> None:
        """Leave out, after the first round, peers that took much longer than the best of them."""
        best = self.result.best_peer()
        if best is None:
            return
        limit = max(WORTH_SAVING, self._options.patience * self.result.figures[best].walls[0])
        for name, figures in self.result.peers().items():
            figures.slow = bool(figures.walls) and figures.walls[0] > limit and name not in self._row.task.always

    def _task(self, kind: str, function: str, indices: list[npt.NDArray[np.int64]]) -> Task:
        task = self._row.task
        return Task(
            kind=kind,
            function=function,
            paths=[str(path) for path in self._paths],
            indices=[numbers.tolist() for numbers in indices],
            size=task.size,
            threads=CORES,
            concurrency=task.concurrency,
            repeat=task.repeat,
        )

    def _right_indices(self, ours: bool) -> list[npt.NDArray[np.int64]]:
        """Return the right frames; those of a snap differ between FlashCodec and the peers."""
        if self._row.task.ours != "snapped" or not ours:
            return self._indices
        keys = [analyse_bitstream(path).key_frames for path in self._paths]
        return [nearest(key_frames, indices) for key_frames, indices in zip(keys, self._indices, strict=True)]

    def _look_at(self, name: str, result: Result, kept: npt.NDArray[Any]) -> None:
        figures = self.result.figures[name]
        if self._row.task.kind == "patches":
            figures.difference = self._difference(name, kept)
            return
        if self._row.task.kind == "analysis":
            figures.wrong = abs(len(kept) - self.result.asked)
            return
        expected = self._right_indices(is_ours(name))
        parts = np.split(kept, np.cumsum(result["frames"])[:-1])
        answers = zip(parts, expected, self._references, strict=True)
        figures.wrong = sum(wrong_frames(part, indices, pictures) for part, indices, pictures in answers)

    def _difference(self, name: str, kept: npt.NDArray[np.float32]) -> str:
        """Say how far the patches are from FlashCodec's, in steps of 255."""
        ours = self._scratch / "patches.npy"
        if name == "FlashCodec":
            np.save(ours, kept)
            return ""
        apart = np.abs(kept - np.load(ours, mmap_mode="r")) * 255 * np.mean(STD)
        return f"from FlashCodec's: mean {apart.mean():.2f}, largest {apart.max():.0f} of 255"


def nearest(key_frames: npt.NDArray[np.int64], indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the key frame nearest to each index."""
    closest: npt.NDArray[np.int64] = key_frames[np.abs(key_frames - indices[:, None]).argmin(axis=1)]
    return closest


def chosen_rows(tasks: str | None, videos: str | None, everything: bool, device: str) -> list[Row]:
    rows = DEFAULT_ROWS + (OTHER_ROWS if everything or videos is not None else [])
    if device == "cuda":
        rows = GPU_ROWS
    names = tasks.split(",") if tasks else list(TASKS)
    if unknown := set(names) - set(TASKS):
        raise typer.BadParameter(f"no task {', '.join(sorted(unknown))}; there are {', '.join(TASKS)}")
    beginnings = tuple(videos.split(",")) if videos else ("",)
    rows = [row for row in rows if row.task.name in names and row.video.startswith(beginnings)]
    if not rows:
        raise typer.BadParameter("no row of the benchmark has such a task and video")
    return rows


def check_gpu() -> None:
    """End the program with a message where frames cannot be on a GPU."""
    try:
        FlashCodec(device="cuda").close()
    except RuntimeError as error:
        raise typer.BadParameter(f"--device cuda: {error}") from error


def main(
    rounds: Annotated[int, typer.Option(help="How often each contestant runs, in turn")] = 5,
    tasks: Annotated[str | None, typer.Option(help=f"Some of {','.join(TASKS)}")] = None,
    videos: Annotated[str | None, typer.Option(help="Beginnings of file names, with commas; 'clips' for these")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All files, not just the tasks on their main file")] = False,
    peers: Annotated[
        str | None, typer.Option(help="Names of contestants beside FlashCodec, with commas; '' for none")
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="PYTHON", help="Measure the FlashCodec of this interpreter, too")
    ] = None,
    add: Annotated[bool, typer.Option("--add", help="Keep the other rows that are in decode.json")] = False,
    quick: Annotated[bool, typer.Option(help="Tiny files, one round: to see that it runs")] = False,
    patience: Annotated[float, typer.Option(help="A peer this many times slower than the best one runs once")] = 1.2,
    timeout: Annotated[float, typer.Option(help="Seconds that a contestant may take for one round")] = 240.0,
    folder: Annotated[Path, typer.Option(help="Folder of the videos, made there if missing")] = DEFAULT_FOLDER,
    installed: Annotated[Path, typer.Option(help="Folder that install_peers.py filled")] = FOLDER,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the frames are to be")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Folder for decode.json, decode.md and the pictures")] = None,
) -> None:
    """Compare FlashCodec with other decoders."""
    console = Console(stderr=True)
    if device == "cuda":
        check_gpu()
    out = out or (RESULTS / "gpu" / "decode" if device == "cuda" else RESULTS)
    rows = chosen_rows(tasks, videos, everything, device)
    names = list(dict.fromkeys(name for row in rows for name in files_of(row, quick)))
    paths = ensure(names, folder, console, quick)
    entrants = Entrants(device, None if peers is None else peers.split(","), before)
    options = Options(1 if quick else rounds, patience, timeout, entrants, installed, folder / "references")
    out.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "machine": describe_machine() | {"python": platform.python_version()},
        "cores": CORES if device == "cpu" else 1,  # the floor of a GPU is that of all its units
        "load": os.getloadavg()[0],
        "device": device,
        "versions": entrants.versions([row.task for row in rows], installed),
        "rows": [],
    }
    if add and (out / "decode.json").exists():
        document = added(document, out / "decode.json", rows)
    with tempfile.TemporaryDirectory() as scratch, Progress(console=console, transient=True) as progress:
        for row in progress.track(rows, description="rows"):
            course = Course(row, [paths[name] for name in files_of(row, quick)], options, Path(scratch))
            document["rows"].append({})
            for _ in run_rounds(course, options.rounds, progress):
                document["rows"][-1] = dataclasses.asdict(course.result)
                save(document, out / "decode.json")
            write(document, out)
    console.print(f"written: {out / 'decode.md'}, decode.json, decode.png, decode-floor.png")


def added(document: dict[str, Any], path: Path, rows: list[Row]) -> dict[str, Any]:
    """Return the document with the other rows of an earlier run."""
    try:
        return joined(document, json.loads(path.read_text()), [row.title for row in rows])
    except ValueError as error:
        raise typer.BadParameter(f"--add: {error}") from error


def files_of(row: Row, quick: bool) -> list[str]:
    return CLIPS[:QUICK_CLIPS] if quick and row.video == "clips" else row.files


def run_rounds(course: Course, rounds: int, progress: Progress) -> Iterator[int]:
    """Run the rounds; yield after each."""
    with course.contenders() as (floor, contenders):
        task = progress.add_task(course.result.title, total=rounds * len(contenders))
        for number in range(rounds):
            course.run_floor(floor)
            for name, contender in list(contenders.items())[:: -1 if number % 2 else 1]:
                progress.update(task, description=f"{course.result.title}: {name}")
                course.run(name, contender)
                progress.advance(task)
            if number == 0:
                course.leave_out_the_slow()
            yield number
        progress.remove_task(task)


def save(document: dict[str, Any], path: Path) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(path)


if __name__ == "__main__":
    typer.run(main)
