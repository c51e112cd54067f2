"""One decoded frame to what a model reads, on one thread: FlashCodec beside libswscale followed by torch.

Both take the planes of a decoded frame and give uint8; their outputs are compared before anything is measured.
Repetitions are in turn, and a figure is the median; the ratio is the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.table import Table

from flashcodec import Layout, PatchLayout, RGBLayout, _core
from unifiedserve.doctor.machine import describe_machine

Pixels = npt.NDArray[np.uint8]
BT709, LIMITED = 1, False


@dataclass(frozen=True)
class Case:
    name: str
    pixel_format: str
    height: int
    width: int
    layout: Layout


CASES = [
    Case("720p to 224 x 224", "yuv420p", 720, 1280, RGBLayout(224, 224)),
    Case("1080p to 224 x 224", "yuv420p", 1080, 1920, RGBLayout(224, 224)),
    Case("4K to 448 x 448", "yuv420p", 2160, 3840, RGBLayout(448, 448)),
    Case("1080p 10-bit to 224 x 224", "yuv420p10le", 1080, 1920, RGBLayout(224, 224)),
    Case("720p 4:4:4 to 224 x 224", "yuv444p", 720, 1280, RGBLayout(224, 224)),
    Case("720p to Qwen-VL patches of 392 x 700", "yuv420p", 720, 1280, PatchLayout(392, 700, temporal_patch_size=1)),
    Case("720p, CHW", "yuv420p", 720, 1280, RGBLayout(720, 1280, "NCHW")),
    Case("720p, HWC", "yuv420p", 720, 1280, RGBLayout(720, 1280, "NHWC")),
    Case("1080p 10-bit, HWC", "yuv420p10le", 1080, 1920, RGBLayout(1080, 1920, "NHWC")),
]


def random_planes(case: Case) -> Pixels:
    bits = 10 if "10" in case.pixel_format else 8
    samples = case.height * case.width * (3 if "444" in case.pixel_format else 3 / 2)
    values = np.random.default_rng(0).integers(0, 1 << bits, int(samples))
    return values.astype("<u2" if bits > 8 else np.uint8).view(np.uint8)


class Swscale:
    """libswscale to packed RGB of the same size."""

    def __init__(self, case: Case, planes: Pixels) -> None:
        library = ctypes.util.find_library("swscale")
        utilities = ctypes.util.find_library("avutil")
        if library is None or utilities is None:
            raise SystemExit("libswscale and libavutil are not installed")
        self._sws, avutil = ctypes.CDLL(library), ctypes.CDLL(utilities)
        self._sws.sws_getContext.restype = ctypes.c_void_p
        self._sws.sws_getCoefficients.restype = ctypes.c_void_p
        self._height = case.height
        height, width = case.height, case.width
        source, target = (avutil.av_get_pix_fmt(name.encode()) for name in (case.pixel_format, "rgb24"))
        context = self._sws.sws_getContext(width, height, source, width, height, target, 0, None, None, None)
        self._context = ctypes.c_void_p(context)
        matrix = ctypes.c_void_p(self._sws.sws_getCoefficients(BT709))
        self._sws.sws_setColorspaceDetails(self._context, matrix, int(LIMITED), matrix, 1, 0, 1 << 16, 1 << 16)
        self._planes = planes
        self._data, self._strides = (ctypes.c_void_p * 4)(), (ctypes.c_int * 4)()
        address = ctypes.c_void_p(planes.ctypes.data)
        avutil.av_image_fill_arrays(self._data, self._strides, address, source, width, height, 1)
        self.rgb = np.empty((height, width, 3), np.uint8)
        self._out, self._out_strides = (ctypes.c_void_p * 4)(self.rgb.ctypes.data), (ctypes.c_int * 4)(3 * width)

    def __call__(self) -> Pixels:
        self._sws.sws_scale(self._context, self._data, self._strides, 0, self._height, self._out, self._out_strides)
        return self.rgb


def with_torch(case: Case, to_rgb: Swscale) -> Callable[[], Any]:
    layout = case.layout
    assert isinstance(layout, PatchLayout | RGBLayout)

    def patches(picture: torch.Tensor) -> torch.Tensor:
        assert isinstance(layout, PatchLayout)
        size, merge = layout.patch_size, layout.merge_size
        rows, columns = layout.height // size // merge, layout.width // size // merge
        split = picture.reshape(3, rows, merge, size, columns, merge, size)
        return split.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, layout.row_bytes)

    def run() -> torch.Tensor:
        rgb = torch.from_numpy(to_rgb())
        if isinstance(layout, RGBLayout) and layout.order == "NHWC":
            return rgb
        picture = rgb.permute(2, 0, 1)
        size = (layout.height or case.height, layout.width or case.width)
        if size != (case.height, case.width):
            picture = torch.nn.functional.interpolate(picture[None], size, mode="bicubic", antialias=True)[0]
        return patches(picture) if isinstance(layout, PatchLayout) else picture.contiguous()

    return run


def measure(case: Case, repetitions: int) -> dict[str, Any]:
    planes = random_planes(case)
    layout = case.layout.to_core()
    arguments = (planes, case.pixel_format, case.height, case.width, BT709, LIMITED)
    ours = {name: _core.Conversion(*arguments, kernels=name) for name in _core.kernels()}
    peer = with_torch(case, Swscale(case, planes))
    expected = np.asarray(peer()).reshape(-1)
    for name, conversion in ours.items():
        if not np.array_equal(conversion.lay_out(layout), expected):
            raise SystemExit(f"{case.name}: {name} does not give the peer's bytes")
    runs: dict[str, Callable[[], Any]] = {name: partial(ours[name].lay_out, layout) for name in ours}
    runs["libswscale + torch"] = peer
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    best = _core.kernels()[0]
    ratios = [theirs / mine for theirs, mine in zip(seconds["libswscale + torch"], seconds[best], strict=True)]
    return {
        "case": case.name,
        "milliseconds": {name: round(statistics.median(times) * 1e3, 3) for name, times in seconds.items()},
        "ratio": round(statistics.median(ratios), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("bench/results/conversion.json"))
    parser.add_argument("--repetitions", type=int, default=41)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [measure(case, options.repetitions) for case in CASES]
    names = list(results[0]["milliseconds"])
    table = Table(*["one frame, ms", *names, f"ratio to {names[0]}"])
    for result in results:
        cells = [f"{result['milliseconds'][name]:.3f}" for name in names]
        table.add_row(result["case"], *cells, f"{result['ratio']:.2f}")
    Console().print(table)
    options.json.write_text(json.dumps({"machine": describe_machine(), "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
