"""Where a part of a medium is cached, only the rest is decoded, and it is the same as when all is."""

import io
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
import torch
from media import Clip, make_image
from PIL import Image
from torch import Tensor
from vision_requests import let_in

from flashcodec import PatchLayout, TileLayout
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.media import MediaPlan, Source
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource
from unifiedserve.placement import FIRST_MEMORY
from unifiedserve.worker.vision.stage import MediaBuffers, VisionStage

VIDEO = MediaPlan(
    kind="video",
    frame_indices=tuple(range(7)),
    layout=PatchLayout(height=56, width=56, patch_size=14, temporal_patch_size=2, merge_size=2),
    units=4,
    patches_per_unit=16,
    tokens_per_unit=4,
)
TILED = MediaPlan(
    kind="image",
    layout=TileLayout(rows=2, columns=2, tile=28, thumbnail="last"),
    units=5,
    patches_per_unit=2,
    tokens_per_unit=1,
)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    file = io.BytesIO()
    Image.fromarray(make_image(1, 100, 120)).save(file, "PNG")
    (tmp_path / "picture.png").write_bytes(file.getvalue())
    return tmp_path / "picture.png"


def decode(
    patches: RowBuffer, visual: RowBuffer, plan: MediaPlan, path: Path, units: list[int] | None
) -> dict[int, Tensor]:
    """The patches of each unit; the medium's first one is number 10."""
    finished = Event()
    stage = VisionStage({FIRST_MEMORY: MediaBuffers(patches, visual)}, 1, 1, finished.set)
    found: dict[int, Tensor] = {}
    try:
        source = MediaSource(plan=plan, name="it", where=Source(path=str(path)), first_unit=10, units=units)
        let_in(stage, Ticket(1, 0.0), source)
        while stage.decoding:
            finished.wait()
            finished.clear()
            for output in stage.take_outputs():
                message = stage.write(output)
                assert message is not None, output.error
                for unit, pages, aside in zip(message.units, message.pages, message.visual, strict=True):
                    assert len(aside) == plan.unit_tokens(unit - 10)
                    visual.pool.release(aside)
                    rows = plan.patches_per_unit
                    found[unit] = patches.get(patches.spread(pages, rows), 0, rows)
                    patches.pool.release(pages)
    finally:
        stage.close()
    assert patches.pool.used_pages() == visual.pool.used_pages() == 0
    return found


@pytest.mark.parametrize("units", [[1, 3], [0], [2, 3]])
def test_units_of_a_video(
    patches: RowBuffer, visual: RowBuffer, clips: Callable[[int], Clip], units: list[int]
) -> None:
    path = clips(8).path
    whole = decode(patches, visual, VIDEO, path, None)
    assert whole.keys() == {10, 11, 12, 13}
    some = decode(patches, visual, VIDEO, path, units)
    assert some.keys() == {10 + unit for unit in units}
    assert all(torch.equal(rows, whole[unit]) for unit, rows in some.items())


@pytest.mark.parametrize("units", [[1, 4], [0]])
def test_tiles_of_an_image(patches: RowBuffer, visual: RowBuffer, picture: Path, units: list[int]) -> None:
    whole = decode(patches, visual, TILED, picture, None)
    assert whole.keys() == {10, 11, 12, 13, 14}
    some = decode(patches, visual, TILED, picture, units)
    assert some.keys() == {10 + unit for unit in units}
    assert all(torch.equal(rows, whole[unit]) for unit, rows in some.items())
