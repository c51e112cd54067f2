"""Videos that arrive at once: when is each of them decoded, by FlashCodec's order and if they take turns?

FlashCodec goes on with the video that has least left, so one that has begun is finished first. Turns are made here of
pieces: all of a video's pieces are asked for at once, and the second one of each has a lower priority than the first of
any. A short clip that arrives in the midst of them must not wait for any.

    python bench/decode/at_once.py --videos 4,16 --rounds 3
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from videos import DEFAULT_FOLDER

from flashcodec import Bitstream, FlashCodec, RGBLayout, analyse_bitstream
from unifiedserve.doctor.machine import describe_machine

LONG, SHORT = "h264_720p_8min.mp4", "short_360p_2s.mp4"
LAYOUT = RGBLayout(224, 224)
PIECE = 8  # frames of a turn
Times = list[float]


def add_whole(codec: FlashCodec, stream: Bitstream, frames: int) -> set[int]:
    """Ask for a video's frames; return the requests."""
    return {codec.add_decoding_request(stream, uniform(stream, frames), LAYOUT)}


def add_pieces(codec: FlashCodec, stream: Bitstream, frames: int) -> set[int]:
    """Ask for a video's frames piece by piece, each with a lower priority than the one before; return the requests."""
    indices = uniform(stream, frames)
    pieces = [indices[i : i + PIECE] for i in range(0, len(indices), PIECE)]
    return {codec.add_decoding_request(stream, piece, LAYOUT, priority=-i) for i, piece in enumerate(pieces)}


WAYS: dict[str, Callable[[FlashCodec, Bitstream, int], set[int]]] = {"least left": add_whole, "turns": add_pieces}


def uniform(stream: Bitstream, frames: int) -> np.ndarray:
    """Return so many frames, evenly spread, int64."""
    return np.linspace(0, stream.num_frames - 1, frames).astype(np.int64)


def decode(codec: FlashCodec, way: str, streams: list[Bitstream], frames: int) -> Times:
    """Return when (seconds since all were asked for) each video was decoded."""
    start = time.monotonic()
    left = [WAYS[way](codec, stream, frames) for stream in streams]
    ends: Times = []
    while len(ends) < len(streams):
        output = codec.get_decoding_output()
        if output is None or not output.done:
            continue
        for requests in left:
            if output.request in requests:
                requests.remove(output.request)
                if not requests:
                    ends.append(time.monotonic() - start)
    return ends


def short_among(codec: FlashCodec, streams: list[Bitstream], short: Bitstream, frames: int) -> float:
    """Return how long (seconds) a short clip takes that arrives when the first frame of long ones has come out."""
    requests = [request for stream in streams for request in add_whole(codec, stream, frames)]
    codec.get_decoding_output()
    start = time.monotonic()
    (wanted,) = add_whole(codec, short, 4)
    while True:
        output = codec.get_decoding_output()
        if output is not None and output.request == wanted and output.done:
            break
    taken = time.monotonic() - start
    for request in requests:
        codec.cancel(request)
    return taken


def summary(times: Times) -> dict[str, float]:
    """Return the mean and the 95th percentile, in seconds."""
    return {"mean": statistics.mean(times), "p95": float(np.percentile(times, 95))}


def show(console: Console, figures: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print a table."""
    table = Table(title="Seconds until a video is decoded")
    for column in ("videos at once", "order", "mean", "p95"):
        table.add_column(column, justify="right")
    for count, ways in figures.items():
        for way, values in ways.items():
            table.add_row(count, way, f"{values['mean']:.1f}", f"{values['p95']:.1f}")
    console.print(table)


def main(
    videos: Annotated[str, typer.Option(help="How many at once: 4,16")] = "4,16",
    frames: Annotated[int, typer.Option(min=PIECE, help="Evenly spread over each")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="The ways take turns in each")] = 3,
    folder: Annotated[Path, typer.Option(help="With the files that videos.py makes")] = DEFAULT_FOLDER,
    out: Annotated[Path, typer.Option(help="The JSON file")] = Path("bench/results/at-once.json"),
) -> None:
    """Measure how long videos take that are asked for at once."""
    console = Console()
    if not (folder / LONG).exists() or not (folder / SHORT).exists():
        console.print(f"[red]{folder} lacks {LONG} or {SHORT}: run bench/decode/videos.py {LONG} {SHORT}[/red]")
        sys.exit(2)
    counts = [int(count) for count in videos.split(",")]
    times: dict[int, dict[str, Times]] = {count: {way: [] for way in WAYS} for count in counts}
    alone, among = [], []
    with FlashCodec(num_threads=0) as codec:
        streams = [analyse_bitstream(folder / LONG) for _ in range(max(counts))]
        short = analyse_bitstream(folder / SHORT)
        decode(codec, "least left", streams[:1], frames)
        for _ in track(range(rounds), "rounds", console=console):
            alone.extend(decode(codec, "least left", [short], 4))
            among.append(short_among(codec, streams, short, frames))
            for count in counts:
                for way in WAYS:
                    times[count][way] += decode(codec, way, streams[:count], frames)
    figures = {str(count): {way: summary(taken) for way, taken in ways.items()} for count, ways in times.items()}
    show(console, figures)
    console.print(
        f"A short clip takes {statistics.median(alone) * 1e3:.0f} ms alone, and among {max(counts)} long ones "
        f"{statistics.median(among) * 1e3:.0f} ms (median; at most {max(among) * 1e3:.0f})."
    )
    found = {"machine": describe_machine(), "frames": frames, "rounds": rounds, "seconds": figures}
    out.write_text(json.dumps(found | {"short_alone": alone, "short_among": among}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
