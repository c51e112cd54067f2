"""Frames found again in the layouts of the encoders, beside the same picture resized alone."""

import io

import numpy as np
import pytest
import torch
from flashcodec.image import image_in_layout
from PIL import Image

from flashcodec import Layout, PatchLayout, RGBLayout, TileLayout
from unifiedserve.messages.layouts import View, Views
from unifiedserve.worker.vision.views import cut_views

HEIGHT, WIDTH = 90, 160


@pytest.fixture(scope="module")
def png() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((WIDTH, HEIGHT)).save(file, "PNG")
    return file.getvalue()


def resized(png: bytes, height: int, width: int) -> np.ndarray:
    """[height, width, 3]"""
    planes = image_in_layout(png, RGBLayout(height, width))
    return planes.reshape(3, height, width).transpose(1, 2, 0)


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        (PatchLayout(112, 56, 14, 2, 2), (112, 56)),
        (PatchLayout(64, 96, 16, 1, 1), (64, 96)),
        (RGBLayout(56, 70), (56, 70)),
        (RGBLayout(56, 70, "NHWC"), (56, 70)),
        (TileLayout(2, 3, 28), (56, 84)),
        (TileLayout(2, 3, 28, "last"), (56, 84)),
        (TileLayout(2, 3, 28, "first", (56, 60)), (56, 60)),
        (TileLayout(2, 3, 28, content=(40, 60), corner=True), (40, 60)),
    ],
    ids=str,
)
def test_frames_of_a_layout(png: bytes, layout: Layout, size: tuple[int, int]) -> None:
    frames = layout.frames_of(image_in_layout(png, layout).reshape(-1))
    for frame in frames:
        np.testing.assert_array_equal(frame, resized(png, *size))
    assert len(frames) == (layout.temporal_patch_size if isinstance(layout, PatchLayout) else 1)


def test_the_middle_of_a_cropped_picture(png: bytes) -> None:
    layout = RGBLayout(56, 70, crop=(40, 40))
    (frame,) = layout.frames_of(image_in_layout(png, layout).reshape(-1))
    np.testing.assert_array_equal(frame, resized(png, 56, 70)[8:48, 15:55])


def test_the_largest_of_several_views(png: bytes) -> None:
    small, cut = View(((45, 80),)), View((), rows=3, columns=4)
    frame = resized(png, HEIGHT, WIDTH)
    layout = Views(HEIGHT, WIDTH, (small, cut))
    (found,) = layout.frames_of(
        cut_views(torch.from_numpy(np.ascontiguousarray(frame.transpose(2, 0, 1))), layout).numpy()
    )
    np.testing.assert_array_equal(found, frame)
