"""Run `flashcodec sample`: frames of a video as one contact sheet, or as single pictures."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

from flashcodec.bitstream import Bitstream
from flashcodec.cli.console import clock, complain, progress_bar, stdout
from flashcodec.cli.video import File, Fps, IndexList, Indices, NumFrames, Snap, StreamIndex, chosen_frames, open_video
from flashcodec.errors import DecodeError
from flashcodec.layouts import RGBLayout
from flashcodec.serving import FlashCodec

_CELL_SHORT_SIDE = 180
_MOST_PIXELS = 1 << 28
_LONGEST_SIDES = {".png": 2**31 - 1, ".jpg": 65500, ".jpeg": 65500, ".webp": 16383}
_SUFFIXES = tuple(_LONGEST_SIDES)

Size = tuple[int, int]  # width, height
Pixels = npt.NDArray[np.uint8]

Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="The file of a contact sheet (.png, .jpg, .webp), or DIR/ for single PNGs",
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option(
        "--size",
        metavar="SIZE",
        help="The size of each picture: WIDTHxHEIGHT, or the short side. Default: 180 in a sheet, native in DIR/",
    ),
]
Columns = Annotated[
    int | None,
    typer.Option(
        "--columns", min=1, metavar="N", help="Pictures in a row of the sheet. Default: chosen to fill the sheet"
    ),
]


def sample(
    file: File,
    output: Output,
    frames: NumFrames = None,
    fps: Fps = None,
    indices: IndexList = None,
    snap: Snap = False,
    stream: StreamIndex = None,
    size: SizeOption = None,
    columns: Columns = None,
) -> None:
    """Write frames of a video as a contact sheet, or as single pictures.

    Without --frames, --fps or --indices, 64 frames at even distances are taken. Each cell shows its time in the
    video. Damaged frames are left out (red cells), and the exit code is then 1.

    \b
    Write a sheet of 64 frames:
      flashcodec sample holiday.mp4 -o sheet.png
    Take one frame every ten seconds, six in a row, 120 pixels high:
      flashcodec sample holiday.mp4 --fps 0.1 --size 120 --columns 6 -o sheet.png
    Write three frames at native size as single PNGs:
      flashcodec sample holiday.mp4 --indices 0,250,-1 -o frames/
    """
    single = _is_folder(output)
    if single and columns is not None:
        raise typer.BadParameter("--columns is for a contact sheet: single pictures have no columns")
    video = open_video(file, stream)
    targets = chosen_frames(video, frames, fps, indices, snap)
    picture_size = _picture_size(video, size, single)
    write = _write_pictures if single else _write_sheet
    failures: list[DecodeError] = []
    stdout().print(
        write(Decoding(video, targets, picture_size, failures), output, columns), soft_wrap=True, markup=False
    )
    if failures:
        complain(f"{len(failures)} of {len(targets)} frames are missing: {failures[0]}")
        raise typer.Exit(1)


def _is_folder(output: str) -> bool:
    if output.endswith(os.sep) or (output and Path(output).is_dir()):
        return True
    if Path(output).suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(
            f"--output: give a name that ends with {', '.join(_SUFFIXES)}, or a folder with / at its end"
        )
    return False


def _picture_size(video: Bitstream, text: str | None, single: bool) -> Size:
    """Return the size with pixels made square, unless width and height are both given."""
    if text is None and single:
        return video.width, video.height
    if both := re.fullmatch(r"(\d{1,5})x(\d{1,5})", text or ""):
        size = int(both[1]), int(both[2])
    elif text is None or re.fullmatch(r"\d{1,5}", text):
        shape = float(video.width * (video.metadata.pixel_aspect_ratio or 1)), float(video.height)
        scale = int(text or _CELL_SHORT_SIDE) / min(shape)
        size = round(shape[0] * scale), round(shape[1] * scale)
    else:
        raise typer.BadParameter(f"--size: expected WIDTHxHEIGHT or one number, got {text!r}")
    if min(size) < 1 or size[0] * size[1] > _MOST_PIXELS:
        raise typer.BadParameter(f"--size: {size[0]}×{size[1]} is out of range")
    return size


class Decoding(NamedTuple):
    """Decode some frames, resized. `failures` fills with the errors of frames that do not come out."""

    video: Bitstream
    targets: Indices
    size: Size
    failures: list[DecodeError]

    def time(self, place: int) -> str:
        return clock(self.video.pts_seconds[self.targets[place]])

    def frames(self) -> Iterator[tuple[int, Pixels | None]]:
        """Yield (place in `targets`, uint8 [height, width, 3] or None) of each frame, as they are decoded."""
        layout = RGBLayout(self.size[1], self.size[0], "NHWC")
        with FlashCodec() as codec, progress_bar() as progress:
            task = progress.add_task("decoding", total=len(self.targets))
            codec.add_decoding_request(self.video, self.targets, layout, on_error="skip")
            done = False
            while not done:
                output = codec.get_decoding_output()
                assert output is not None
                done = output.done
                if output.error is not None:
                    self.failures.extend([output.error] * output.count)
                for place in range(output.first, output.first + output.count):
                    yield place, None if output.data is None else output.data[place - output.first]
                progress.advance(task, output.count)
        if len(self.failures) == len(self.targets):
            raise self.failures[0]


def _write_pictures(decoding: Decoding, folder: str, _: int | None) -> str:
    from PIL import Image

    Path(folder).mkdir(parents=True, exist_ok=True)
    stem = Path(decoding.video.core.source_name).stem
    for place, pixels in decoding.frames():
        if pixels is not None:
            Image.fromarray(pixels).save(Path(folder, f"{stem}-{decoding.targets[place]:06}.png"))
    count = len(decoding.targets) - len(decoding.failures)
    return f"{count} pictures of {decoding.size[0]}×{decoding.size[1]} in {folder}"


def _write_sheet(decoding: Decoding, path: str, columns: int | None) -> str:
    from flashcodec.cli.sheet import Sheet, grid

    count, size = len(decoding.targets), decoding.size
    _, _, (width, height) = grid(count, size, columns)
    longest = _LONGEST_SIDES[Path(path).suffix.lower()]
    if max(width, height) > longest:
        raise typer.BadParameter(
            f"a sheet of {width}×{height} is too large for {Path(path).suffix}, which has {longest} pixels a side at "
            "most: give other --columns, a smaller --size, or a name with .png"
        )
    if width * height > _MOST_PIXELS:
        raise typer.BadParameter(
            f"a sheet of {width}×{height} is too large: give a smaller --size, or write single pictures with -o DIR/"
        )
    sheet = Sheet(count, size, columns)
    for place, pixels in decoding.frames():
        sheet.put(place, pixels, decoding.time(place))
    sheet.save(path)
    return f"{path}: {count} frames, {sheet.columns}×{sheet.rows} cells of {size[0]}×{size[1]}"
