"""Decode JPEGs by a stand-in for a GPU's hardware, in a process of its own; prints "the same" if each is laid out as
the stand-in's picture is on the host, and what it does not decode is left to Pillow.

gpu_images_process.py COUNT [NUMBER:KIND...]: so many at once, of which those numbers are "cut" short or "progressive";
prints as JSON the sizes of the batches, and what became of each: "the same", "another" or "left to Pillow".
"""

import ctypes
import gc
import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from flashcodec.image import GpuImages
from gpu_process import bytes_of
from PIL import Image, ImageOps

from flashcodec import DecodeError, Layout, PatchLayout, RGBLayout

LAYOUTS: list[Layout] = [PatchLayout(56, 84), PatchLayout(32, 48, 16, 1, 1), RGBLayout(40, 60, "NHWC"), RGBLayout()]


def encoded(width: int, height: int, orientation: int, **options: object) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "JPEG", exif=exif, **options)
    return buffer.getvalue()


def expected(width: int, height: int, orientation: int, layout: Layout) -> bytes:
    y, x = np.mgrid[:height, :width]
    image = Image.fromarray(np.stack([7 * x + 3 * y, x, y], -1).astype(np.uint8))
    image.getexif()[0x0112] = orientation
    upright = np.asarray(ImageOps.exif_transpose(image))
    return layout.group_of(upright[None]).tobytes()


def check(images: GpuImages, case: tuple[int, int, int, Layout]) -> None:
    found = images.image_in_layout(encoded(*case[:3]), case[3])
    assert bytes_of(found) == expected(*case)


def refused(images: GpuImages) -> None:
    layout = LAYOUTS[0]
    assert images.image_in_layout(encoded(40, 30, 1, progressive=True), layout) is None
    for image, kind in ((Image.new("L", (40, 30)), "JPEG"), (Image.new("RGB", (40, 30)), "PNG")):
        buffer = io.BytesIO()
        image.save(buffer, kind)
        assert images.image_in_layout(buffer.getvalue(), layout) is None
    try:
        images.image_in_layout(b"no image", layout)
    except DecodeError:
        return
    raise AssertionError("what is no image has been decoded")


def decode_all() -> None:
    images = GpuImages()
    cases = [(*size, turn, layout) for size in ((64, 48), (37, 23)) for turn in range(1, 9) for layout in LAYOUTS]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda case: check(images, case), cases))
    refused(images)


def decode_at_once(count: int, kinds: dict[int, str]) -> dict[str, list[Any]]:
    images, layout = GpuImages(), RGBLayout(40, 60)

    def decode(number: int) -> str:
        width = 64 + number
        kind = kinds.get(number)
        data = encoded(width, 48, 1, progressive=kind == "progressive")
        found = images.image_in_layout(data[:-2] if kind == "cut" else data, layout)
        if found is None:
            return "left to Pillow"
        return "the same" if bytes_of(found) == expected(width, 48, 1, layout) else "another"

    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(decode, range(count)))
    library = ctypes.CDLL("libnvjpeg.so.13")
    batches = [library.fake_nvjpeg_batch(number) for number in range(library.fake_nvjpeg_batches())]
    return {"batches": batches, "results": results}


def main() -> None:
    if sys.argv[1:]:
        kinds = [argument.split(":") for argument in sys.argv[2:]]
        print(json.dumps(decode_at_once(int(sys.argv[1]), {int(number): kind for number, kind in kinds})))
        return
    decode_all()
    gc.collect()
    assert ctypes.CDLL("libnvjpeg.so.13").fake_nvjpeg_live() == 0
    assert ctypes.CDLL("libnvjpeg.so.13").fake_nvjpeg_in_software() == 0
    assert ctypes.CDLL("libcuda.so.1").fake_cuda_live() == 0
    print("the same")


if __name__ == "__main__":
    main()
