"""The largest image is what --max-image-megapixels says, whatever FlashCodec or Pillow hold to be large."""

import io
import warnings

import pytest
from PIL import Image

from unifiedserve.config import LARGE_IMAGE_WARNING, EngineConfig
from unifiedserve.engine.admission.media import ImageSize, inspect
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import MediaInput


def png(width: int, height: int) -> MediaInput:
    data = io.BytesIO()
    Image.new("1", (width, height)).save(data, "PNG")
    return MediaInput(kind="image", data=data.getvalue())


def test_images_up_to_the_limit_are_taken() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", LARGE_IMAGE_WARNING)
        assert inspect([png(12_800, 10_000)], EngineConfig().max_image_pixels) == [ImageSize(12_800, 10_000)]


def test_larger_ones_are_refused_with_the_option() -> None:
    with pytest.raises(RequestError, match=r"1001x1000, .* 1000000 pixels .*--max-image-megapixels") as refused:
        inspect([png(10, 10), png(1001, 1000)], EngineConfig(max_image_megapixels=1).max_image_pixels)
    assert refused.value.message.startswith("image 2")
