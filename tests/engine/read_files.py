"""Reads media files with the vision stage, in this process."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from threading import Condition

import torch
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource, VisionRequest
from unifiedserve.worker.vision.stage import VisionStage

PAGE_ROWS = 16


def read_files(media: Sequence[tuple[MediaPlan, Path]], row_bytes: int) -> Tensor:
    """Return the patches, uint8 [n, row_bytes], that the vision stage writes for these plans of files, in order."""
    sources, plan_of = [], []
    for number, (plan, path) in enumerate(media, 1):
        sources.append(MediaSource(plan=plan, name=f"medium {number}", path=str(path), first_unit=len(plan_of)))
        plan_of += [plan] * plan.units
    if not sources:
        return torch.empty(0, row_bytes, dtype=torch.uint8)
    pages = sum(plan.units * -(-plan.patches_per_unit // PAGE_ROWS) for plan, _ in media)
    pool = PagePool.create(f"test-files-{uuid.uuid4().hex[:12]}", pages + PAGE_ROWS, PAGE_ROWS * row_bytes)
    try:
        units = _read(RowBuffer(pool, row_bytes, torch.uint8), sources, plan_of)
        assert pool.used_pages() == 0
    finally:
        pool.close()
        pool.unlink()
    return torch.cat([units[number] for number in range(len(plan_of))])


def _read(patches: RowBuffer, sources: list[MediaSource], plan_of: list[MediaPlan]) -> dict[int, Tensor]:
    """Return the patches of each unit by its number."""
    arrived = Condition()

    def wake() -> None:
        with arrived:
            arrived.notify_all()

    stage = VisionStage(patches, 1, 2, wake)
    units: dict[int, Tensor] = {}
    try:
        stage.accept(VisionRequest(ticket=Ticket(1, 0.0), media=sources))
        stage.start(1)
        while len(units) < len(plan_of):
            with arrived:
                while not (outputs := stage.take_outputs()):
                    arrived.wait()
            for output in outputs:
                assert not output.error
                message = stage.write(output)
                assert message is not None
                for unit, pages in zip(message.units, message.pages, strict=True):
                    rows = plan_of[unit].patches_per_unit
                    units[unit] = patches.get(patches.spread(pages, rows), 0, rows)
                    patches.pool.release(pages)
    finally:
        stage.close()
    return units
