"""Implement the schedulers of papers as published, to compare with: `--scheduling` says which one plans."""

from collections.abc import Callable
from dataclasses import replace

from unifiedserve.scheduling.decode import schedule_decode
from unifiedserve.scheduling.encode_prefill import schedule_encode, schedule_prefill
from unifiedserve.scheduling.pacing import within_cap
from unifiedserve.scheduling.state import Budget, Chunk, EncodeWork, Plan, State


def stage_level_batching(
    state: State,
    budget: Budget,
    encode_units: Callable[[State, Budget], list[EncodeWork]] = schedule_encode,
    prefill_chunks: Callable[..., list[Chunk]] = schedule_prefill,
    *,
    decodes: bool,
) -> Plan:
    """Plan all sequences, then prompt chunks, and encode only if no prefill runs (HydraInfer Alg. 1).

    Both budgets are the largest whose steps keep to the target between tokens, in an instance that `decodes`, and to
    the cap of the others else.
    """
    run, preempt = schedule_decode(state.decodes, state.kv_free, budget.kv_page_tokens, budget.max_running)
    if preempt:
        return Plan(decode=run, preempt=preempt)
    limit = within_cap(budget, state, budget.slo_tbt if decodes else budget.step_cap, len(run))
    limit = replace(limit, kv_reserve=limit.kv_reserve + len(run))
    prefill = prefill_chunks(state, limit, beside_decode=True)
    return Plan([] if prefill else encode_units(state, limit), prefill, run)


def orchestration(
    state: State,
    budget: Budget,
    encode_units: Callable[[State, Budget], list[EncodeWork]] = schedule_encode,
    prefill_chunks: Callable[..., list[Chunk]] = schedule_prefill,
) -> Plan:
    """Plan both stages in every step, each within a budget of its own (UnifiedServe Alg. 3).

    Chunks of any size go at once, and all that waits is encoded, whatever is prefilled.
    """
    limit = within_cap(budget, state, budget.step_cap)
    return Plan(encode_units(state, limit), prefill_chunks(state, limit, beside_decode=True))
