"""`flashcodec sample`: frames of a video as one contact sheet, or as single pictures."""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt
import typer

from flashcodec.bitstream import Bitstream
from flashcodec.cli.console import clock, progress_bar, stdout
from flashcodec.cli.video import File, Fps, IndexList, Indices, NumFrames, StreamIndex, chosen_frames, open_video
from flashcodec.layouts import RGBLayout
from flashcodec.serving import FlashCodec

if TYPE_CHECKING:
    from PIL.Image import Image

_CELL_SHORT_SIDE = 180
_MOST_SHEET_PIXELS = 1 << 28
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_GAP = 4  # pixels between cells

Size = tuple[int, int]  # width, height

Output = Annotated[
    str, typer.Option("--output", "-o", metavar="PATH", help="A picture for a contact sheet, DIR/ for single PNGs")
]
SizeOption = Annotated[
    str | None,
    typer.Option("--size", metavar="SIZE", help="WIDTHxHEIGHT, or the short side; default: 180, or native in DIR/"),
]
Columns = Annotated[int | None, typer.Option("--columns", min=1, metavar="N", help="Cells in a row of the sheet")]


def sample(
    file: File,
    output: Output,
    frames: NumFrames = None,
    fps: Fps = None,
    indices: IndexList = None,
    stream: StreamIndex = None,
    size: SizeOption = None,
    columns: Columns = None,
) -> None:
    """Write frames of a video as a contact sheet, or as single pictures.

    Without a choice, it is 64 frames at even distances. Each cell shows its time in the video.

    \b
    A sheet of 64 frames:
      flashcodec sample holiday.mp4 -o sheet.png
    One frame every ten seconds, six in a row, 120 pixels high:
      flashcodec sample holiday.mp4 --fps 0.1 --size 120 --columns 6 -o sheet.png
    Three frames at native size as single PNGs:
      flashcodec sample holiday.mp4 --indices 0,250,-1 -o frames/
    """
    single = _is_folder(output)
    if single and columns is not None:
        raise typer.BadParameter("--columns: single pictures have none")

    video = open_video(file, stream)
    targets = chosen_frames(video, frames, fps, indices)
    picture_size = _picture_size(video, size, single)
    if single:
        written = _write_pictures(video, targets, picture_size, Path(output), Path(file).stem)
    else:
        written = _write_sheet(video, targets, picture_size, Path(output), columns)
    stdout().print(written, soft_wrap=True)


def _is_folder(output: str) -> bool:
    if output.endswith(os.sep) or Path(output).is_dir():
        return True
    if Path(output).suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(f"--output: a name with {', '.join(_SUFFIXES)}, or a folder with / at its end")
    return False


def _picture_size(video: Bitstream, size: str | None, single: bool) -> Size:
    """With pixels made square, unless width and height are both given."""
    ratio = video.metadata.pixel_aspect_ratio or 1
    width, height = float(video.width * ratio), float(video.height)
    if size is None and single:
        return video.width, video.height
    if both := re.fullmatch(r"(\d{1,5})x(\d{1,5})", size or ""):
        width, height, short = int(both[1]), int(both[2]), min(int(both[1]), int(both[2]))
    elif size is None or re.fullmatch(r"\d{1,5}", size):
        short = int(size or _CELL_SHORT_SIDE)
    else:
        raise typer.BadParameter(f"--size: expected WIDTHxHEIGHT or one number, got {size!r}")
    if short < 1:
        raise typer.BadParameter("--size: must be positive")
    scale = short / min(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _write_pictures(video: Bitstream, targets: Indices, size: Size, folder: Path, stem: str) -> str:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for place, pixels in _decoded(video, targets, size):
        Image.fromarray(pixels).save(folder / f"{stem}-{targets[place]:06}.png")
    return f"{len(set(targets.tolist()))} pictures of {size[0]}×{size[1]} in {folder}{os.sep}"


def _write_sheet(video: Bitstream, targets: Indices, size: Size, path: Path, columns: int | None) -> str:
    from PIL import Image

    columns = min(columns or _columns(len(targets), size), len(targets))
    rows = -(-len(targets) // columns)
    width, height = columns * (size[0] + _GAP) + _GAP, rows * (size[1] + _GAP) + _GAP
    if width * height > _MOST_SHEET_PIXELS:
        raise typer.BadParameter(f"a sheet of {width}×{height} is too large: a smaller --size, or -o DIR/")
    sheet = Image.new("RGB", (width, height), (24, 24, 24))
    for place, pixels in _decoded(video, targets, size):
        cell = Image.fromarray(pixels)
        _write_time(cell, clock(video.pts_seconds[targets[place]]))
        row, column = divmod(place, columns)
        sheet.paste(cell, (_GAP + column * (size[0] + _GAP), _GAP + row * (size[1] + _GAP)))
    sheet.save(path)
    return f"{path}: {len(targets)} frames, {columns}×{rows} cells of {size[0]}×{size[1]}"


def _columns(count: int, size: Size) -> int:
    """So that the sheet comes near to 16:10."""
    return max(1, round(math.sqrt(count * 1.6 * size[1] / size[0])))


def _write_time(cell: "Image", time: str) -> None:
    from PIL import ImageDraw, ImageFont

    size = max(8, min(cell.height // 9, cell.width // 7, 28))
    font = ImageFont.load_default(size)
    place = (size // 3, cell.height - size // 3)
    ImageDraw.Draw(cell).text(place, time, "white", font, "ls", stroke_width=max(1, size // 8), stroke_fill="black")


def _decoded(video: Bitstream, targets: Indices, size: Size) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
    """(place in `targets`, uint8 [height, width, 3]) of each frame, as they are decoded."""
    layout = RGBLayout(size[1], size[0], "NHWC")
    with FlashCodec() as codec, progress_bar() as progress:
        task = progress.add_task("decoding", total=len(targets))
        codec.add_decoding_request(video, targets, layout)
        for _ in targets:
            output = codec.get_decoding_output()
            assert output is not None
            if output.error is not None:
                raise output.error
            assert output.data is not None
            yield output.first, output.data[0]
            progress.advance(task)
