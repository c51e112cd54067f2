"""The largest image is what --max-image-megapixels says, whatever FlashCodec or Pillow hold to be large."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from unifiedserve.config import LARGE_IMAGE_WARNING, EngineConfig
from unifiedserve.engine.admission.media import ImageSize, inspect
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import MediaInput
from unifiedserve.reading.readers import ReadHere


@pytest.fixture
def png(tmp_path: Path) -> Callable[[int, int], MediaInput]:
    def make(width: int, height: int) -> MediaInput:
        path = tmp_path / f"{width}x{height}.png"
        Image.new("1", (width, height)).save(path)
        return MediaInput(kind="image", path=str(path))

    return make


def test_images_up_to_the_limit_are_taken(png: Callable[[int, int], MediaInput]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", LARGE_IMAGE_WARNING)
        assert inspect([png(12_800, 10_000)], EngineConfig().media.max_image_pixels, ReadHere()) == [
            ImageSize(12_800, 10_000)
        ]


def test_larger_ones_are_refused_with_the_option(png: Callable[[int, int], MediaInput]) -> None:
    with pytest.raises(RequestError, match=r"1001x1000, .* 1000000 pixels .*--max-image-megapixels") as refused:
        inspect(
            [png(10, 10), png(1001, 1000)], EngineConfig.of(max_image_megapixels=1).media.max_image_pixels, ReadHere()
        )
    assert refused.value.message.startswith("image 2")


def test_other_limits_do_not_name_the_option(tmp_path: Path) -> None:
    path = tmp_path / "scans.jpg"
    Image.new("RGB", (8, 8)).save(path, progressive=True)
    data = path.read_bytes()
    scan = data.rindex(b"\xff\xda")
    path.write_bytes(data[:scan] + data[scan:-2] * 101 + data[-2:])
    with pytest.raises(RequestError, match=r"more than 100 scans; save it with fewer, or as baseline$"):
        inspect([MediaInput(kind="image", path=str(path))], EngineConfig().media.max_image_pixels, ReadHere())
