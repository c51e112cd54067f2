"""Pictures laid out by a GPU's threads beside those that cores lay out; prints how many were compared."""

import itertools

import numpy as np
import numpy.typing as npt

from flashcodec import Layout, PatchLayout, RGBLayout, TileLayout, _core

GPU = 0
BT709 = 1
# name -> bits, chroma divided by, across and down
FORMATS = {
    "yuv420p": (8, 2, 2),
    "nv12": (8, 2, 2),
    "p010le": (10, 2, 2),
    "yuv422p": (8, 2, 1),
    "yuv444p10le": (10, 1, 1),
}
SIZES = [(96, 130), (360, 640)]
LAYOUTS: list[Layout] = [
    RGBLayout(96, 130),
    RGBLayout(50, 41, "NHWC", "bilinear", square=(9, 8, 7)),
    PatchLayout(112, 56),
    TileLayout(2, 1, 24, "first", (40, 24)),
]
ORIENTATIONS = [(0, False), (1, False), (2, True), (3, True)]


def noise(name: str, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return a picture's samples at random, those of P010 in the upper bits."""
    bits, across, down = FORMATS[name]
    samples = height * width + 2 * (height // down) * (width // across)
    values = np.random.default_rng(1).integers(0, 1 << bits, samples)
    if name == "p010le":
        values <<= 6
    return values.astype("<u2" if bits > 8 else np.uint8).view(np.uint8)


def main() -> None:
    compared = 0
    for name, size, layout, orientation in itertools.product(FORMATS, SIZES, LAYOUTS, ORIENTATIONS):
        conversion = _core.Conversion(noise(name, *size), name, *size, BT709, False)
        here = conversion.lay_out_by_points(layout.to_core(), *orientation)
        there = conversion.lay_out_by_points(layout.to_core(), *orientation, gpu=GPU)
        np.testing.assert_array_equal(there, here, err_msg=f"{name} {size} {layout} {orientation}")
        compared += 1
    print(f"{compared} pictures are the same")


if __name__ == "__main__":
    main()
