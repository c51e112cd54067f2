"""Mix several stages of a worker in one step."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from unifiedserve.config import Scheduling
from unifiedserve.placement import MODEL_STAGES, Stage
from unifiedserve.scheduling.decode import schedule_decode
from unifiedserve.scheduling.encode_prefill import schedule_encode, schedule_prefill
from unifiedserve.scheduling.pacing import encode_within, heavy_within_cap, next_start, prefill_within, stretch
from unifiedserve.scheduling.published import orchestration, stage_level_batching
from unifiedserve.scheduling.state import Budget, Chunk, EncodeWork, Plan, State

Policy = Callable[[State, Budget], Plan]
PlanPrefill = Callable[..., list[Chunk]]
PlanEncode = Callable[[State, Budget], list[EncodeWork]]


def encode_prefill(
    state: State,
    budget: Budget,
    encode_units: PlanEncode = schedule_encode,
    prefill_chunks: PlanPrefill = schedule_prefill,
) -> Plan:
    """Plan both stages in every step, each with its own budget (UnifiedServe Alg. 3).

    Beside prefill only requests are encoded whose turn is no later than that of what is prefilled, where both stages
    share cores: working ahead for others would only delay the first tokens that are nearly there. Where the budget
    `fills` batches, all go along.
    """
    budget = heavy_within_cap(budget, state)
    prefill, encode = prefill_chunks(state, budget), encode_units(state, budget)
    if prefill and encode and not budget.fills:
        served = _until_last(state, {chunk.uid for chunk in prefill})
        encode = [work for work in encode if work.uid in served]
    return Plan(encode, prefill)


def _until_last(state: State, uids: set[int]) -> set[int]:
    """Return the uids of all requests that come no later than the last of `uids`."""
    served: set[int] = set()
    for request in state.prefills:
        if uids <= served:
            break
        served.add(request.ticket.uid)
    return served


def continuous_batching(state: State, budget: Budget) -> Plan:
    """Plan decode alone: every running sequence advances by one token, when it is time for that."""
    start = next_start(state.pace, budget, len(state.decodes))
    if state.decodes and state.now < start:
        return Plan(wait_until=start)
    run, preempt = schedule_decode(state.decodes, state.kv_free, budget.kv_page_tokens, budget.max_running)
    return Plan(decode=run, preempt=preempt)


def stage_level(
    state: State,
    budget: Budget,
    encode_units: PlanEncode = schedule_encode,
    prefill_chunks: PlanPrefill = schedule_prefill,
) -> Plan:
    """Plan decode first, then prefill chunks, and encode only if no prefill runs (HydraInfer Alg. 1).

    Except for the oldest request: later arrivals must not keep it from being encoded for ever. Beside sequences that
    decode, both are cut to what the target between tokens leaves; decode alone makes room for other workers.
    """
    run, preempt = schedule_decode(state.decodes, state.kv_free, budget.kv_page_tokens, budget.max_running)
    if preempt:
        return Plan(decode=run, preempt=preempt)
    target = budget.slo_tbt * stretch(budget, len(state.prefills), len(run))
    mixed = replace(budget, kv_reserve=budget.kv_reserve + len(run), slo_tbt=target)
    limit = prefill_within(mixed, state.costs) if run else mixed
    prefill = prefill_chunks(state, limit, beside_decode=bool(run))
    running = {chunk.uid for chunk in prefill}
    starved = state.prefills[:1] and state.prefills[0].ticket.uid not in running
    encode = []
    if starved or not prefill:
        tokens = sum(chunk.stop - chunk.start for chunk in prefill)
        encode = encode_units(state, encode_within(mixed, state.costs, tokens) if run else budget)
    if encode or prefill:
        return Plan(encode, prefill, run)
    return continuous_batching(state, budget)


def policy_for(stages: Iterable[Stage], scheduling: Scheduling = "adaptive") -> Policy:
    """Return the policy of a worker with these language stages. It plans nothing for other stages."""
    hosted = set(MODEL_STAGES) & set(stages)
    decodes = Stage.DECODE in hosted
    if scheduling == "stage-level":
        mixed: Callable[..., Plan] = partial(stage_level_batching, decodes=decodes)
    elif hosted == {Stage.DECODE}:
        return continuous_batching
    elif scheduling == "prefill-encode" and not decodes:
        mixed = orchestration
    else:
        mixed = stage_level if decodes else encode_prefill
    if Stage.ENCODE not in hosted:
        return partial(mixed, encode_units=_no_encode)
    if Stage.PREFILL not in hosted:
        return partial(mixed, prefill_chunks=_no_prefill)
    return mixed


def goes_between(stages: Iterable[Stage], budget: Budget) -> bool:
    """Tell whether a worker with these stages may run prompts between layers of the encoder.

    Not where streams would wait for both: their steps are cut to the target anyway.
    """
    hosted = set(stages)
    return bool(budget.short_tokens) and hosted >= {Stage.ENCODE, Stage.PREFILL} and Stage.DECODE not in hosted


def _no_encode(state: State, budget: Budget) -> list[EncodeWork]:
    return []


def _no_prefill(state: State, budget: Budget, beside_decode: bool = False) -> list[Chunk]:
    return []
