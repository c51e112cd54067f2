"""Real files through the vision stage in a layout of views: the pixels that torchvision's resize makes."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Condition

import reference  # first: it imports torchvision

# isort: split
import pytest
import torch
from media import Clip, Frames, make_image
from PIL import Image
from vision_requests import let_in

from ipc_buffers import PagePool
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.layouts import View, Views
from unifiedserve.messages.media import MediaKind, MediaPlan, Source
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource
from unifiedserve.placement import FIRST_MEMORY
from unifiedserve.worker.vision.stage import MediaBuffers, VisionStage

SIDE = 28
STEPS = ((90, 121), (56, 84))
TILES = View(STEPS, 2, 3)
WHOLE = View((*STEPS, (SIDE, SIDE)))

reference.import_torchvision()


@pytest.fixture
def patches() -> Iterator[RowBuffer]:
    pool = PagePool.create(f"test-views-{uuid.uuid4().hex[:12]}", 64, SIDE * 3 * SIDE)
    yield RowBuffer(pool, 3 * SIDE, torch.uint8)
    pool.close()
    pool.unlink()


def expected(frame: Frames) -> torch.Tensor:
    """[7 tiles, side * 3 * side bytes]"""
    from torchvision.transforms.v2 import InterpolationMode, functional

    picture = torch.from_numpy(frame).permute(2, 0, 1)
    for size in STEPS:
        picture = functional.resize(picture, list(size), InterpolationMode.LANCZOS)
    whole = functional.resize(picture, [SIDE, SIDE], InterpolationMode.LANCZOS)
    tiles = [tile for row in picture.split(SIDE, 1) for tile in row.split(SIDE, 2)]
    return torch.stack([*tiles, whole]).flatten(1)


def plan(kind: MediaKind, height: int, width: int, frames: tuple[int, ...] = ()) -> MediaPlan:
    layout = Views(height, width, (TILES, WHOLE), "lanczos")
    units = layout.count * max(1, len(frames))
    return MediaPlan(
        kind=kind, frame_indices=frames, layout=layout, units=units, patches_per_unit=SIDE, tokens_per_unit=4
    )


def decoded(patches: RowBuffer, visual: RowBuffer, source: MediaSource) -> torch.Tensor:
    """What the stage writes for one medium: a row a unit."""
    arrived = Condition()

    def wake() -> None:
        with arrived:
            arrived.notify_all()

    stage = VisionStage({FIRST_MEMORY: MediaBuffers(patches, visual)}, 1, 2, wake)
    units: dict[int, torch.Tensor] = {}
    try:
        let_in(stage, Ticket(1, 1), source)
        while len(units) < source.plan.units:
            with arrived:
                while not (outputs := stage.take_outputs()):
                    arrived.wait()
            for output in outputs:
                assert not output.error
                message = stage.write(output)
                assert message is not None
                for unit, pages in zip(message.units, message.pages, strict=True):
                    units[unit] = patches.get(patches.spread(pages, SIDE), 0, SIDE).flatten()
                    patches.pool.release(pages)
    finally:
        stage.close()
    assert patches.pool.used_pages() == 0
    return torch.stack([units[number] for number in range(source.plan.units)])


def test_an_image(patches: RowBuffer, visual: RowBuffer, tmp_path: Path) -> None:
    pixels = make_image(1, 133, 201)
    path = tmp_path / "image.png"
    Image.fromarray(pixels).save(path)
    source = MediaSource(plan=plan("image", 133, 201), name="image 1", where=Source(path=str(path)))
    assert torch.equal(decoded(patches, visual, source), expected(pixels))


def test_a_video(patches: RowBuffer, visual: RowBuffer, clips: Callable[[int], Clip]) -> None:
    clip, frames = clips(25), (0, 3, 7, 24)
    source = MediaSource(
        plan=plan("video", *clip.frames.shape[1:3], frames), name="video 1", where=Source(path=str(clip.path))
    )
    assert torch.equal(decoded(patches, visual, source), torch.cat([expected(clip.frames[frame]) for frame in frames]))
