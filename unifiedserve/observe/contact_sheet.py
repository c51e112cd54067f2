"""Draw small pictures of a request's frames for its viewers.

They are read from the patch buffer behind the encoder's back. Nothing is held for them: a free page keeps its contents
until it is taken again, which begins an epoch. So pages are copied first, and their epochs compared then. Pictures
whose pages were taken meanwhile are just not shown.
"""

import asyncio
import io
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image

from ipc_buffers import ArenaError, PagePool
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.wire import WatchedUnits
from unifiedserve.observe.live import Frame, Frames, Live

_log = logging.getLogger(__name__)

_SIDE = 224  # pixels, at most
_QUALITY = 80
_MOST_WAITING = 64  # groups of frames; further ones are not shown


class ContactSheet:
    """Draw small pictures of frames for viewers. Belongs to the event loop; the work is done in a thread of its own."""

    def __init__(self, pools: Mapping[str, PagePool], row_bytes: int, live: Live) -> None:
        self._pools = pools  # by the instance that encodes what is in one
        self._row_bytes = row_bytes
        self._live = live
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "contact-sheet")

    def show(self, viewer: str, request: str, media: Sequence[MediaPlan], decoded: WatchedUnits, encoder: str) -> None:
        """Tell the viewer of these units of the `media` as soon as there are pictures."""
        if self._waiting == _MOST_WAITING:
            return
        self._waiting += 1
        loop = asyncio.get_running_loop()
        shown = loop.run_in_executor(self._thread, self._frames, request, media, decoded, self._pools[encoder])
        shown.add_done_callback(lambda shown: self._tell(viewer, shown))

    def close(self) -> None:
        """Forget what has not been shown yet, and wait for the thread."""
        self._thread.shutdown(cancel_futures=True)

    def _tell(self, viewer: str, shown: "asyncio.Future[list[Frames]]") -> None:
        self._waiting -= 1
        if shown.cancelled():
            return
        if error := shown.exception():
            _log.error("frames cannot be shown", exc_info=error)
            return
        for frames in shown.result():
            self._live.tell(viewer, frames)

    def _frames(self, request: str, media: Sequence[MediaPlan], decoded: WatchedUnits, pool: PagePool) -> list[Frames]:
        """Return for each medium the frames whose units are all there."""
        pages = dict(zip(decoded.units, decoded.pages, strict=True))
        shown, first = [], 0
        for number, plan in enumerate(media):
            frames = []
            for group in range(plan.units // plan.units_per_group):
                start = first + group * plan.units_per_group
                units = [pages[unit] for unit in range(start, start + plan.units_per_group) if unit in pages]
                if len(units) == plan.units_per_group and (data := self._read(units, plan, pool)) is not None:
                    frames += _small(plan, group, data)
            first += plan.units
            if frames:
                shown.append(Frames(request, number, frames))
        return shown

    def _read(self, units: Sequence[Pages], plan: MediaPlan, pool: PagePool) -> np.ndarray | None:
        """Return the bytes of these units, uint8 [bytes]; None if a page holds something else by now."""
        try:
            unit_bytes = plan.patches_per_unit * self._row_bytes
            copies = [_copy(pages.numbers, pool)[:unit_bytes] for pages in units]
            there = all(pool.renew(*pages)[0] == len(pages.numbers) for pages in units)
        except ArenaError:  # the workers are being replaced, and the pools with them
            return None
        return np.concatenate(copies) if there else None


def _copy(numbers: Sequence[int], pool: PagePool) -> np.ndarray:
    """Return the bytes of all rows in these pages."""
    size = pool.page_bytes
    pages = [np.frombuffer(pool.memory.read(number * size, size), np.uint8) for number in numbers]
    return np.concatenate(pages)


def _small(plan: MediaPlan, group: int, data: np.ndarray) -> list[Frame]:
    """Return the frames of a group as JPEG; the padding of a video's last one is left out."""
    count = len(plan.frames_of([group])) if plan.kind == "video" else 1
    frames = []
    for position, pixels in enumerate(plan.layout.frames_of(data)[:count]):
        picture = Image.fromarray(np.ascontiguousarray(pixels))
        picture.thumbnail((_SIDE, _SIDE))
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=_QUALITY)
        frames.append(Frame(group * plan.group_size + position, file.getvalue()))
    return frames
