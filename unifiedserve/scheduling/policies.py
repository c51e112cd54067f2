"""How a worker that hosts several stages mixes them in one step."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from unifiedserve.config import Stage
from unifiedserve.scheduling.decode import schedule_decode
from unifiedserve.scheduling.encode_prefill import schedule_encode, schedule_prefill
from unifiedserve.scheduling.state import Budget, Plan, State

Policy = Callable[[State, Budget], Plan]


def encode_prefill(state: State, budget: Budget) -> Plan:
    """UnifiedServe Alg. 3: both stages in every step, each with its own budget."""
    return Plan(encode=schedule_encode(state, budget), prefill=schedule_prefill(state, budget))


def continuous_batching(state: State, budget: Budget) -> Plan:
    """Decode alone: every running sequence advances by one token."""
    run, preempt = schedule_decode(state.decodes, state.kv_free, budget.kv_page_tokens, budget.max_running)
    return Plan(decode=run, preempt=preempt)


def stage_level(state: State, budget: Budget) -> Plan:
    """HydraInfer Alg. 1: decode first, then prefill chunks, and encode only if no prefill runs.

    Except for the oldest request: later arrivals must not keep it from being encoded for ever.
    """
    run, preempt = schedule_decode(state.decodes, state.kv_free, budget.kv_page_tokens, budget.max_running)
    if preempt:
        return Plan(decode=run, preempt=preempt)
    kept_for_growth = replace(budget, kv_reserve=budget.kv_reserve + len(run))
    prefill = schedule_prefill(state, kept_for_growth)
    running = {chunk.uid for chunk in prefill}
    starved = state.prefills[:1] and state.prefills[0].uid not in running
    encode = schedule_encode(state, budget) if starved or not prefill else []
    return Plan(encode, prefill, run)


def policy_for(stages: Iterable[Stage]) -> Policy:
    """The policy of a worker with these language stages."""
    hosted = set(stages)
    if hosted == {Stage.DECODE}:
        return continuous_batching
    return stage_level if Stage.DECODE in hosted else encode_prefill
