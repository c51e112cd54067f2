"""Share the cores between decoding and the heavy stages: the time between tokens has a target.

Apart, decode rests between its steps while others have work; together in one worker, prompt and encoder budgets are
cut so that a mixed step ends in time. Either way streams come at the target, and the rest goes to what is heavy.
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from unifiedserve.messages.costs import Costs
from unifiedserve.scheduling.state import Budget, Pace, Plan, PrefillState, State
from unifiedserve.scheduling.step_costs import Line, largest_within

_TELLING = 16  # prompt tokens; a step with fewer tells little about their cost
#: prompt tokens and visual tokens that a step has in any case: of fewer it takes about as long, since it reads all
#: weights, and on a GPU waits for its launches; beyond 8,000 tokens of context they cost 5 % more each than 512 do
LEAST_PROMPT, _LEAST_VISUAL = 128, 256
_FIRST_TOKENS = 32  # a budget before anything was measured
_UNLIMITED = 1 << 30  # tokens
_WHOLE_PROMPT = 8192  # tokens, where a budget of prompt tokens is unlimited
_CORES = 0.7  # share from which on decode gets by with half of the cores
_NEWEST = 0.3  # weight of the newest measurement


def next_start(pace: Pace, budget: Budget, streams: int = 1) -> float:
    """Return when decode may take its next step (monotonic seconds): at once if nobody else wants the cores.

    Else one target after the last start, and after a rest in proportion to that step even if it took all of the target.
    That beat is stretched while others are about to join: a step costs much the same for few sequences as for many.
    """
    if not budget.slo_tbt or not pace.others_work:
        return pace.ended
    beat = max(budget.slo_tbt, (1 + budget.rest) * (pace.ended - pace.started))
    return pace.started + beat * stretch(budget, pace.waiting, streams, pace.joining)


def stretch(budget: Budget, waiting: int, streams: int, joining: bool = False) -> float:
    """Return how far the beat is stretched: 1 if there is nobody to make room for, and never further for many.

    Others wait long if they are more than the streams, and streams that join soon make the same steps worth more.
    """
    if joining:
        return budget.stretch_joining
    return budget.stretch if waiting > streams else 1.0


def joins_soon(plan: Plan, state_of: Callable[[int], PrefillState], budget: Budget) -> bool:
    """Tell whether requests get their first tokens by this step or the next. This step begins with them.

    The next step can take all of a short prompt when this one has encoded its media.
    """
    chunks = ((state_of(chunk.uid), chunk.stop) for chunk in plan.prefill)
    encoded = (state_of(work.uid) for work in plan.encode)
    return any(not state.admitted and stop == state.num_tokens for state, stop in chunks) or any(
        not state.admitted and state.num_tokens <= budget.prefill_tokens for state in encoded
    )


def within_share(budget: Budget, share: float) -> Budget:
    """Cut the budget of steps that decode to the share of heavy work beside them."""
    return replace(budget, slo_tbt=budget.slo_tbt * share, rest=budget.rest * share) if share < 1 else budget


def leaves_cores(share: float) -> bool:
    """Tell whether steps that decode beside heavy work leave half of the cores to it."""
    return share > _CORES


def heavy_within_share(budget: Budget, share: float) -> Budget:
    """Cut the budget of steps that do not decode to their share. They run beside a worker that does.

    It is not cut so far that a step would be no shorter for it.
    """
    if share >= 1:
        return budget
    prompt = budget.prefill_tokens or _WHOLE_PROMPT
    return replace(
        budget,
        prefill_tokens=max(min(LEAST_PROMPT, prompt), int(share * prompt)),
        encode_tokens=max(min(_LEAST_VISUAL, budget.encode_tokens), int(share * budget.encode_tokens)),
    )


def learn_step(costs: Costs, decodes: int, prompt_tokens: int, seconds: float) -> Costs:
    """Return the costs after a forward pass over `decodes` sequences and `prompt_tokens` that took `seconds`."""
    if not prompt_tokens:
        return msgspec.structs.replace(costs, decode=blend(costs.decode, seconds))
    if prompt_tokens < _TELLING:
        return costs
    added = max(0.0, seconds - costs.decode) if decodes else seconds
    return msgspec.structs.replace(costs, prompt_token=blend(costs.prompt_token, added / prompt_tokens))


def learn_encode(costs: Costs, visual_tokens: int, seconds: float) -> Costs:
    """Return the costs after the encoder took `seconds` for `visual_tokens`."""
    return msgspec.structs.replace(costs, visual_token=blend(costs.visual_token, seconds / visual_tokens))


def prefill_within(budget: Budget, costs: Costs) -> Budget:
    """Cut a budget's prompt tokens, so that a step which also decodes meets the target."""
    if not budget.slo_tbt:
        return budget
    fitting = max(budget.least_prompt, _affordable(room_beside(budget, costs.decode), costs.prompt_token))
    return replace(budget, prefill_tokens=min(budget.prefill_tokens or fitting, fitting))


def encode_within(budget: Budget, costs: Costs, prompt_tokens: int) -> Budget:
    """Cut a budget's visual tokens likewise, in a step that also takes `prompt_tokens`."""
    if not budget.slo_tbt:
        return budget
    left = room_beside(budget, costs.decode) - prompt_tokens * costs.prompt_token
    fitting = max(budget.least_visual, _affordable(left, costs.visual_token))
    return replace(budget, encode_tokens=min(budget.encode_tokens, fitting))


def within_cap(budget: Budget, state: State, cap: float, decodes: int = 0) -> Budget:
    """Return the budget of steps of which none takes longer than `cap` seconds (0: no limit), by what is measured.

    Prompt tokens are computed in one pass with the sequences that decode, visual tokens after a pass over these.
    """
    if not cap:
        return budget
    prompt = _fitting(state.steps.passes, cap, budget.prefill_tokens or _UNLIMITED, budget.least_prompt, decodes)
    left = cap - (state.costs.decode if decodes else 0.0)
    visual = _fitting(state.steps.batches, left, budget.encode_tokens, budget.least_visual)
    return replace(budget, prefill_tokens=prompt, encode_tokens=visual)


def heavy_within_cap(budget: Budget, state: State) -> Budget:
    """Cut the budget of steps where nothing decodes to their cap. It stays large enough to gain something."""
    if not budget.step_cap:
        return budget
    efficient = replace(budget, least_prompt=LEAST_PROMPT, least_visual=_LEAST_VISUAL)
    return within_cap(efficient, state, budget.step_cap)


def _fitting(line: Line, seconds: float, most: int, least: int, others: int = 0) -> int:
    """Return how many tokens beside `others` fit; few before anything was measured."""
    if not line.weight:
        return min(most, max(least, _FIRST_TOKENS))
    fixed, token = line.parts
    return largest_within(lambda tokens: fixed + (others + tokens) * token, seconds, most, least)


def room_beside(budget: Budget, decode: float) -> float:
    """Return the seconds of a mixed step beside its sequences, which take `decode` seconds.

    They are at least in proportion to them, like the rest between steps.
    """
    return max(budget.slo_tbt - decode, budget.rest * decode)


def _affordable(seconds: float, token: float) -> int:
    return int(seconds / token) if token else _FIRST_TOKENS


def blend(average: float, newest: float) -> float:
    """Return the average of what was measured lately, with the newest figure; 0 is none."""
    return average + _NEWEST * (newest - average) if average else newest
