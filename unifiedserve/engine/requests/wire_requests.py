"""What goes over the wire for an attempt at a request."""

import msgspec

from unifiedserve.engine.caches import Caches, PromptContents
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource, PrefillRequest, Reuse, VisionRequest


def prefill_request(active: ActiveRequest, uid: int, indices: list[int], caches: Caches) -> PrefillRequest:
    """Return the language stages' part: one answer goes on from its tokens so far, several start at the prompt.

    Its ticket has yet to say what it owes, and who serves it.
    """
    prompt = active.planned.prompt
    generated = active.answers[indices[0]].token_ids if len(indices) == 1 else []
    request = PrefillRequest(
        ticket=active.ticket(uid),
        token_ids=prompt.token_ids + generated,
        num_prompt=len(prompt.token_ids),
        media=prompt.media,
        sampling=_sampling(active, begun=bool(generated)),
        indices=indices,
        embed=active.planned.request.embed,
    )
    if active.contents is not None:
        _add_keys(request, active.contents, caches)
        if not active.stale:
            keys = None if request.reads_prompt else request.page_keys  # all of it is to be computed
            request.reuse = caches.find(len(request.token_ids), keys, active.contents)
    return request


def vision_request(
    active: ActiveRequest, ticket: Ticket, reuse: Reuse, *, watched: bool = False
) -> VisionRequest | None:
    """Return the media that must be decoded, for there is nothing to reuse instead; None if there are none."""
    sources = [
        msgspec.structs.replace(source, units=units) for source in active.sources if (units := _missing(source, reuse))
    ]
    return VisionRequest(ticket=ticket, media=sources, cached=reuse.units, watched=watched) if sources else None


def _sampling(active: ActiveRequest, begun: bool) -> SamplingParams:
    sampling = msgspec.structs.replace(active.planned.sampling, stop=())  # stop strings are found in the engine
    return msgspec.structs.replace(sampling, prompt_logprobs=None) if begun else sampling  # they are there


def _add_keys(request: PrefillRequest, contents: PromptContents, caches: Caches) -> None:
    request.page_keys = caches.page_keys(request.token_ids, contents)
    request.tail_media = caches.tail_media(request.token_ids, contents)
    request.unit_keys = caches.unit_keys(contents)


def _missing(source: MediaSource, reuse: Reuse) -> list[int]:
    """Return the units of a medium that are not there yet."""
    first = source.first_unit
    return [unit for unit in source.wanted if first + unit >= reuse.covered and first + unit not in reuse.units]
