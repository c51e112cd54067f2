"""Make the messages of an attempt at a request."""

import msgspec

from unifiedserve.engine.caches import Caches, Known
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.memory.content_keys import ROOT_KEY
from unifiedserve.memory.sequence_tables import Row
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import Generation, MediaSource, PrefillRequest, Reuse, VisionRequest
from unifiedserve.placement import Route


def prefill_request(
    active: ActiveRequest, uid: int, indices: list[int], route: Route, caches: Caches
) -> PrefillRequest:
    """Return the language stages' part: one answer goes on from its tokens so far, several start at the prompt.

    The instances of a `route` serve it, as its ticket will say with what it owes.
    """
    prompt = active.planned.prompt
    generated = active.answers[indices[0]].token_ids if len(indices) == 1 else []
    token_ids, sampling = prompt.token_ids + generated, _sampling(active, begun=bool(generated))
    embed, known = active.planned.request.embed, Known()
    if active.contents is not None:
        whole = embed or sampling.prompt_logprobs is not None
        known = caches.look_up(route.prefill, token_ids, active.contents, whole=whole, anew=active.stale)
    return PrefillRequest(
        ticket=active.ticket(uid),
        token_ids=token_ids,
        num_prompt=len(prompt.token_ids),
        media=prompt.media,
        sampling=sampling,
        indices=indices,
        embed=embed,
        **known._asdict(),
    )


def encode_request(active: ActiveRequest, uid: int, caches: Caches) -> PrefillRequest:
    """Return the encoder's part of a prompt that another node prefills."""
    prompt = active.planned.prompt
    return PrefillRequest(
        ticket=active.ticket(uid),
        token_ids=prompt.token_ids,
        num_prompt=len(prompt.token_ids),
        media=prompt.media,
        sampling=active.planned.sampling,
        indices=[0],
        unit_keys=caches.unit_keys(active.contents) if active.contents else [],
    )


def continued(active: ActiveRequest, ticket: Ticket, index: int, row: Row, caches: Caches) -> Generation:
    """Return an answer as decode takes it over from a worker that has died: its pages hold all but the last token."""
    prompt, token_ids = active.planned.prompt, active.planned.prompt.token_ids + active.answers[index].token_ids
    keyed, last_key, tail_media = 0, b"", list[bytes]()
    if contents := active.contents:
        keyed = (len(token_ids) - 1) // contents.page_tokens
        keys = caches.look_up(ticket.route.prefill, token_ids, contents, anew=True).page_keys
        if keys is not None:
            last_key = [ROOT_KEY, *keys[:keyed]][-1]
            tail_media = contents.media.within(keyed * contents.page_tokens, len(token_ids))
    return Generation(
        ticket=ticket,
        index=index,
        token_ids=token_ids,
        num_prompt=len(prompt.token_ids),
        pages=row.pages,
        position_offset=row.position_offset,
        sampling=_sampling(active, begun=True).for_choice(index),
        keyed=keyed if last_key else 0,
        last_key=last_key,
        tail_media=tail_media,
    )


def vision_request(
    active: ActiveRequest, ticket: Ticket, reuse: Reuse, *, watched: bool = False, recalls: bool = True
) -> VisionRequest | None:
    """Return the media that must be decoded, because nothing can be reused instead.

    None if there are none. Vision recalls what is to be reused if it `recalls`; else, where that is in another memory,
    prefill does. Media with a window are wanted whole: units to reuse are recalled when their turn comes, if they are
    still there.
    """
    window = active.planned.window
    again = Reuse(covered=reuse.covered) if window and any(_missing(each, reuse) for each in active.sources) else reuse
    sources = [
        msgspec.structs.replace(source, units=units) for source in active.sources if (units := _missing(source, again))
    ]
    cached = reuse.units if recalls else {}
    if not sources:
        return None
    return VisionRequest(ticket=ticket, media=sources, cached=cached, watched=watched, window=window)


def _sampling(active: ActiveRequest, begun: bool) -> SamplingParams:
    sampling = msgspec.structs.replace(active.planned.sampling, stop=())  # stop strings are found in the engine
    return msgspec.structs.replace(sampling, prompt_logprobs=None) if begun else sampling  # they are there


def _missing(source: MediaSource, reuse: Reuse) -> list[int]:
    """Return the units of a medium that are not there yet."""
    first = source.first_unit
    return [unit for unit in source.wanted if not reuse.has(first + unit)]
