"""Prefill-encode orchestration (UnifiedServe Alg. 3): two token budgets a step, one for each stage.

Running prefills go first, then new requests; encoding is batched ahead of prefill up to a budget of its
own, and goes on while prefill waits for KV pages.
"""

from unifiedserve.scheduling.state import Budget, Chunk, EncodeWork, PrefillState, State

_UNLIMITED = 1 << 60
_ENOUGH = 256  # prompt tokens; with fewer the weights are read too often


def schedule_encode(state: State, budget: Budget) -> list[EncodeWork]:
    """Return the ready units to encode now, for requests whose visual tokens all fit; at least one unit if any can."""
    left, visual_free = budget.encode_tokens, state.visual_free
    work: list[EncodeWork] = []
    for request in sorted(state.prefills, key=_encode_turn):
        units = [i for i, unit in enumerate(request.units) if unit.ready and not unit.encoded]
        if not units or not (budget.overlap or request.all_ready):
            continue
        if not request.reserved:
            if request.visual_pages > visual_free:
                break  # first come, first served: nobody overtakes
            visual_free -= request.visual_pages
        taken: list[int] = []
        for i in units:
            if request.units[i].cost > left and (work or taken):
                break
            left -= request.units[i].cost
            taken.append(i)
        if taken:
            work.append(EncodeWork(request.ticket.uid, taken))
        if left <= 0:
            break
    return work


def schedule_prefill(state: State, budget: Budget, beside_decode: bool = False) -> list[Chunk]:
    """Return the prompt chunks to prefill now, if they are worth a pass over the weights.

    They are if they fill the budget or bring a prompt to its end; less is left to grow, for a request that has its
    pages of the visual buffer gets all of its tokens without more being prefilled. Beside sequences that decode, which
    read the weights anyway, every token counts. A step that ends a prompt is filled no further than is efficient:
    first tokens do not wait for one another. A chunk ends before a unit that must be whole and does not fit the budget;
    one that begins with it takes all of it all the same. A request gets all of its KV pages at its first chunk; pages
    for the growth of running decodes are kept back, unless nothing holds any.
    """
    most = budget.prefill_tokens or _UNLIMITED
    kv_free, admitting, worth = state.kv_free, True, beside_decode
    taken = 0
    chunks = []
    for request in sorted(state.prefills, key=turn):
        reach = request.reach
        ready = reach - request.prefilled
        if ready <= 0 or taken >= most or not (budget.overlap or reach == request.num_tokens):
            continue
        if not request.admitted:
            if not (request.reserved or request.all_encoded):
                continue
            admitting = admitting and _fits(request.kv_pages, kv_free, state.kv_total, budget.kv_reserve)
            if not admitting:
                continue  # first come, first served: nobody overtakes
            kv_free -= request.kv_pages
        stop = request.chunk_end(most - taken)
        taken += stop - request.prefilled
        chunks.append(Chunk(request.ticket.uid, request.prefilled, stop))
        if stop == request.num_tokens:
            most = min(most, _ENOUGH)
        elif stop < reach:
            most = taken  # full, though a unit that must be whole may leave some of it
        worth = worth or taken >= most or stop == request.num_tokens
    return chunks if worth else []


def turn(request: PrefillState) -> tuple[bool, int, float, int]:
    """Sort requests: running prefills, then new ones, each by priority, then first come, first served."""
    return not request.admitted, *request.ticket.turn


def _encode_turn(request: PrefillState) -> tuple[bool, bool, int, float, int]:
    """Sort likewise, with what has begun to be encoded before what has not: two videos in turns would both be late."""
    return not request.admitted, not request.reserved, *request.ticket.turn


def _fits(pages: int, free: int, total: int, reserve: int) -> bool:
    return pages + reserve <= free or (free == total and pages <= free)
