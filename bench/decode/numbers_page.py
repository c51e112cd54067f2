"""The table of decoders in docs/numbers.md, from the figures of decode.json.

python bench/decode/numbers_page.py   # between two marks in the page
"""

import json
import statistics
from pathlib import Path
from typing import Annotated, Any

import typer
from report import RESULTS, line, measured
from results import Figures, RowResult, digits, paired
from tasks import LONG

PAGE = Path(__file__).parents[2] / "docs" / "numbers.md"
BEGIN, END = "<!-- bench/decode/numbers_page.py writes from here -->\n", "<!-- to here -->\n"
WORDS = {
    "uniform64, h264_720p_8min": "64 of 8 min, H.264 720p",
    "uniform64, h264_1080p_1min": "64 of 1 min, H.264 1080p",
    "uniform64, h264_360p_3min": "64 of 3 min, H.264 360p",
    "uniform64, hevc_720p_3min": "64 of 3 min, HEVC 720p, open GOPs",
    "uniform64, vp9_720p_1min": "64 of 1 min, VP9 720p",
    "uniform64, av1_720p_1min": "64 of 1 min, AV1 720p",
    "uniform64, h264_4k_10s": "64 of 10 s, H.264 4K (one GOP)",
    "uniform64, h264_1080p_gop30_30s": "64 of 30 s, H.264 1080p, GOPs of 30 as phones make",
    "uniform64, screen_720p_1min": "64 of 1 min, H.264 720p, a screen capture",
    "seeks16, h264_720p_8min": "16 times 4 at random places of 8 min, H.264 720p",
    "seeks16, hevc_720p_3min": "16 times 4 at random places of 3 min, HEVC 720p",
    "fps1, h264_720p_8min": "one a second of 8 min, H.264 720p",
    "fps1, hevc_720p_3min": "one a second of 3 min, HEVC 720p",
    "fps1, h264_360p_3min": "one a second of 3 min, H.264 360p",
    "patches, h264_720p_8min": "64 of 8 min to patches of Qwen2.5-VL (peers: and transformers' processor)",
    "every, h264_360p_3min": "all 4,500, H.264 360p, native size",
    "every, h264_4k_10s": "all 250, H.264 4K, native size",
    "clips, clips": "8 of each of 100 clips, 8 at a time",
    "latency, short_360p_2s": "4 of a clip of 2 s",
    "snap, h264_720p_8min": '64 key frames (`snap="keyframe"`) of 8 min; peers: 64 exact frames',
    "analysis, h264_720p_8min": "8 min, H.264 720p, opened: all frames found, none decoded",
}


def renewed(page: str, document: dict[str, Any]) -> str:
    """Return the page's text with the table of these figures between the marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n" + "\n".join(block(document)) + "\n\n" + END + after


def block(document: dict[str, Any]) -> list[str]:
    """Return what the figures were measured with, the table and what belongs to it, as lines."""
    rows = {row.title: row for row in measured(document)}
    titles = [title for title in WORDS if title in rows] + [title for title in rows if title not in WORDS]
    cells = [cells_of(rows[title]) for title in titles]
    lost = [title for title in titles if any(ratio < 1 for ratio in best_ratios(rows[title]))]
    head = ("frames, video", "FlashCodec", "best peer", "ratio", "best of TorchCodec", "ratio", "CPU over the floor¹")
    table = [line(*head), line(*["---"] * len(head)), *(line(*row) for row in cells)]
    return [measured_on(document, list(rows.values())), "", *table, "", " ".join(remarks(rows, lost))]


def measured_on(document: dict[str, Any], rows: list[RowResult]) -> str:
    """Return a sentence about the machine, the versions and the rounds."""
    machine, versions = document["machine"], document["versions"]
    rounds = sorted({len(row.figures["FlashCodec"].walls) for row in rows})
    several = " to ".join(dict.fromkeys([str(rounds[0]), str(rounds[-1])]))
    peers = ", ".join(f"{name} {version}" for name, version in versions.items() if name not in ("ffmpeg", "numpy"))
    return f"{machine['cpu']}, {document['cores']} cores, {machine['date']}, {several} rounds; {peers}:"


def cells_of(row: RowResult) -> list[str]:
    ours = row.figures["FlashCodec"]
    best, torchcodec = row.best_peer(), row.best_peer("TorchCodec")
    over_floor = paired(ours.cpus, row.floors.cpus)
    return [
        WORDS.get(row.title, row.title),
        seconds(ours),
        best or "none",
        ratio(row, best),
        (torchcodec or "none").removeprefix("TorchCodec ").replace("TorchCodec", "defaults"),
        ratio(row, torchcodec),
        digits(statistics.median(over_floor)) if over_floor else "",
    ]


def seconds(figures: Figures) -> str:
    """Return the median time, in ms below 0.1 s."""
    if not figures.walls:
        return figures.failure or "not measured"
    middle = statistics.median(figures.walls)
    return f"{digits(middle)} s" if middle >= 0.1 else f"{1e3 * middle:.0f} ms"


def ratio(row: RowResult, name: str | None) -> str:
    """Return the median of a peer's time over FlashCodec's, in bold where FlashCodec is slower."""
    if name is None or not (ratios := row.ratios(name)):
        return ""
    middle = statistics.median(ratios)
    return digits(middle) if middle >= 1 else f"**{digits(middle)}**"


def best_ratios(row: RowResult) -> list[float]:
    """Return the median ratio of the best peer, if there is one."""
    best = row.best_peer()
    return [statistics.median(row.ratios(best))] if best is not None and row.ratios(best) else []


def remarks(rows: dict[str, RowResult], lost: list[str]) -> list[str]:
    """Return sentences about the losses, the floor, and the memory for the long file."""
    places = "; ".join(WORDS.get(title, title) for title in lost)
    found = [
        f"FlashCodec is slower than the best peer here: {places} (bold)." if lost else "FlashCodec is nowhere slower.",
        "¹ CPU time of FFmpeg's decoder alone for the packets that these frames need, measured in the same rounds.",
    ]
    row = rows.get(f"uniform64, {LONG.split('.')[0]}")
    ours = None if row is None else row.figures["FlashCodec"]
    if ours is not None and ours.peak is not None and ours.handed_out is not None:
        beside = (ours.peak - ours.handed_out) / 1e6
        found.append(
            f"Memory for 64 frames of the 8 min: {beside:.0f} MB beside the {ours.handed_out / 1e6:.0f} MB handed out."
        )
    return found


def main(folder: Annotated[Path, typer.Argument(help="Folder of decode.json")] = RESULTS) -> None:
    """Write the page's table again."""
    document = json.loads((folder / "decode.json").read_text())
    PAGE.write_text(renewed(PAGE.read_text(), document))


if __name__ == "__main__":
    typer.run(main)
