"""Admission to the vision stage: in the order of its queue, within the patch buffer."""

from collections.abc import Sequence

from unifiedserve.scheduling.state import VisionState


def schedule_vision(requests: Sequence[VisionState], free_pages: int) -> list[int]:
    """Return the uids to start decoding, given patch pages that are neither in use nor promised.

    A request waits until all of its patches fit, and nobody behind it overtakes it, so that large ones are not
    starved by small ones. How the admitted requests share the decoder engines is FlashCodec's business
    (UnifiedServe Alg. 2).
    """
    admitted = []
    for request in requests:
        if request.admitted:
            continue
        if request.pages > free_pages:
            break
        free_pages -= request.pages
        admitted.append(request.ticket.uid)
    return admitted
