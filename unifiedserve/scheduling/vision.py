"""Admit requests to the vision stage: in the order of its queue, within the patch and the visual buffer."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unifiedserve.messages.pages import Window
from unifiedserve.messages.ticket import Place
from unifiedserve.scheduling.state import VisionState

NOBODY: Mapping[str, Place] = {}


class BufferPages(NamedTuple):
    """Count pages of a memory's patch buffer, and of its visual buffer."""

    patch: int
    visual: int


def total_of(units: Sequence[BufferPages]) -> BufferPages:
    """Return the pages of all units."""
    return BufferPages(sum(unit.patch for unit in units), sum(unit.visual for unit in units))


def window_of(units: Sequence[BufferPages], buffers: BufferPages) -> Window | None:
    """Return the window for units of so many pages each; None if the buffers hold them all, or not even one of them.

    It is half of a buffer, so that others find room beside it, or the largest unit.
    """
    total = total_of(units)
    if total.patch <= buffers.patch and total.visual <= buffers.visual:
        return None
    largest = BufferPages(max(unit.patch for unit in units), max(unit.visual for unit in units))
    if largest.patch > buffers.patch or largest.visual > buffers.visual:
        return None
    patch = min(total.patch, max(largest.patch, buffers.patch // 2))
    visual = min(total.visual, max(largest.visual, buffers.visual // 2))
    return Window(patch, visual, min(patch // largest.patch, visual // largest.visual))


def patch_window_of(units: Sequence[BufferPages], patch: int) -> Window | None:
    """Return the window for units whose visual tokens stay: it passes on pages of the patch buffer, which has so many.

    None if that holds all of them, or not even the largest.
    """
    total, largest = total_of(units), max((unit.patch for unit in units), default=0)
    if total.patch <= patch or largest > patch:
        return None
    passed = max(largest, patch // 2)
    return Window(passed, total.visual, passed // largest)


def schedule_vision(
    requests: Sequence[VisionState], free: Mapping[str, BufferPages], first_elsewhere: Mapping[str, Place] = NOBODY
) -> list[int]:
    """Return the uids to start decoding, given what is `free` in each memory.

    A request waits until all of its patches and of its visual tokens fit. Nobody behind it takes pages of its memory,
    so that large ones are not starved by small ones. Requests also wait that come behind `first_elsewhere`, the first
    that waits for pages of this memory. All acquire pages in one order, patch and visual ones together and then those
    of the KV cache, so nobody blocks another for ever. FlashCodec shares the decoder engines among the admitted
    requests (UnifiedServe Alg. 2).
    """
    admitted, left = [], dict(free)
    for request in requests:
        if request.admitted or request.memory not in left:
            continue
        patch, visual = left[request.memory]
        first = first_elsewhere.get(request.memory, request.place)
        if first < request.place or request.patch_pages > patch or request.visual_pages > visual:
            del left[request.memory]  # those behind it wait, too
            if not left:
                break
            continue
        left[request.memory] = BufferPages(patch - request.patch_pages, visual - request.visual_pages)
        admitted.append(request.ticket.uid)
    return admitted
