"""How a worker that hosts several stages mixes them in one step."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from unifiedserve.config import Stage
from unifiedserve.scheduling.decode import schedule_decode
from unifiedserve.scheduling.encode_prefill import schedule_encode, schedule_prefill, turn
from unifiedserve.scheduling.pacing import encode_within, give_way, next_start, prefill_within
from unifiedserve.scheduling.state import Budget, Plan, State

Policy = Callable[[State, Budget], Plan]


def encode_prefill(state: State, budget: Budget) -> Plan:
    """UnifiedServe Alg. 3: both stages in every step, each with its own budget.

    Beside prefill only requests are encoded whose turn is no later than that of what is prefilled: both stages share
    the cores, so working ahead for others would only delay the first tokens that are nearly there.
    """
    prefill, encode = schedule_prefill(state, budget), schedule_encode(state, budget)
    if prefill:
        turns = {request.uid: turn(request) for request in state.prefills}
        last = max(turns[chunk.uid] for chunk in prefill)
        encode = [work for work in encode if turns[work.uid] <= last]
    return Plan(encode, prefill)


def continuous_batching(state: State, budget: Budget) -> Plan:
    """Decode alone: every running sequence advances by one token, when it is time for that."""
    start = next_start(state.pace, budget, len(state.decodes))
    if state.decodes and state.now < start:
        return Plan(wait_until=start)
    run, preempt = schedule_decode(state.decodes, state.kv_free, budget.kv_page_tokens, budget.max_running)
    return Plan(decode=run, preempt=preempt)


def stage_level(state: State, budget: Budget) -> Plan:
    """HydraInfer Alg. 1: decode first, then prefill chunks, and encode only if no prefill runs.

    Except for the oldest request: later arrivals must not keep it from being encoded for ever. Beside sequences that
    decode, both are cut to what the target between tokens leaves; decode alone makes room for other workers.
    """
    run, preempt = schedule_decode(state.decodes, state.kv_free, budget.kv_page_tokens, budget.max_running)
    if preempt:
        return Plan(decode=run, preempt=preempt)
    mixed = give_way(replace(budget, kv_reserve=budget.kv_reserve + len(run)), len(state.prefills), len(run))
    limit = prefill_within(mixed, state.costs) if run else mixed
    prefill = schedule_prefill(state, limit, beside_decode=bool(run))
    running = {chunk.uid for chunk in prefill}
    starved = state.prefills[:1] and state.prefills[0].uid not in running
    encode = []
    if starved or not prefill:
        tokens = sum(chunk.stop - chunk.start for chunk in prefill)
        encode = schedule_encode(state, encode_within(mixed, state.costs, tokens) if run else budget)
    if encode or prefill:
        return Plan(encode, prefill, run)
    return continuous_batching(state, budget)


def policy_for(stages: Iterable[Stage]) -> Policy:
    """The policy of a worker with these language stages."""
    hosted = set(stages)
    if hosted == {Stage.DECODE}:
        return continuous_batching
    return stage_level if Stage.DECODE in hosted else encode_prefill
