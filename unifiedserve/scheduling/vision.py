"""Admission to the vision stage: in the order of its queue, within the patch and the visual buffer."""

from collections.abc import Sequence

from unifiedserve.messages.ticket import Place
from unifiedserve.scheduling.state import VisionState


def schedule_vision(
    requests: Sequence[VisionState],
    patch_free: int,
    visual_free: int,
    first_elsewhere: Place | None = None,
) -> list[int]:
    """Return the uids to start decoding, given the pages of both buffers that nobody uses.

    A request waits until all of its patches and of its visual tokens fit, and nobody behind it overtakes it, so that
    large ones are not starved by small ones; nor does who comes behind the first that waits `first_elsewhere`. All
    acquire pages in one order, patch and visual ones together and then those of the KV cache, so nobody blocks another
    for ever. How the admitted requests share the decoder engines is FlashCodec's business (UnifiedServe Alg. 2).
    """
    admitted = []
    for request in requests:
        if request.admitted:
            continue
        if first_elsewhere is not None and first_elsewhere < request.place:
            break
        if request.patch_pages > patch_free or request.visual_pages > visual_free:
            break
        patch_free -= request.patch_pages
        visual_free -= request.visual_pages
        admitted.append(request.ticket.uid)
    return admitted
