"""Explain why a placement wins, in words."""

from collections.abc import Iterator

from unifiedserve.placement.parts import split_parts, stages_of
from unifiedserve.planning.plan import Choice, Plan

_FULL = 0.85  # of what workers can do, or of the time, from which on they are the limit
_LASTING = 5  # times the target for the first token is the least that requests should come for
_LATE = 0.02  # of the requests, from which on they are worth a word


def explain(plan: Plan) -> list[str]:
    """Return lines that say what was found; one that says what is missing where nothing meets the targets."""
    if not plan.choices:
        return [_nothing(plan)]
    return [*_reasons(plan), *_cautions(plan)]


def _nothing(plan: Plan) -> str:
    if plan.nearest is None:
        return "nothing was found" if plan.interrupted else "nothing was found in that time: give it more --seconds"
    nearest = plan.nearest
    if nearest.seen.scale is None:
        return "nothing serves these requests: some need more pages than there are"
    return (
        "nothing meets these targets, not even at a fiftieth of what the devices can do; "
        f"{nearest.label} comes closest: targets {nearest.seen.scale:.2f} times as long would do"
    )


def _cautions(plan: Plan) -> Iterator[str]:
    """Yield a line if all requests come too fast for a queue to grow."""
    seconds = plan.requests / plan.choices[0].value
    if plan.objective == "goodput" and seconds < _LASTING * (plan.slo.ttft or 0.0):
        yield (
            f"caution: at that rate all {plan.requests} requests come within {seconds:.2g} s, and the first token may "
            f"take {plan.slo.ttft:g} s: give more --requests for a rate that is sure to last"
        )


def _reasons(plan: Plan) -> Iterator[str]:
    best, *others = plan.choices
    yield f"{best.label} is best: {limit(best)}"
    for other in others:
        behind = 1 - other.value / best.value
        more = f" with {other.devices} devices" if other.devices != best.devices else ""
        yield (
            f"{other.label}{more}: {behind:.0%} less; {limit(other)}"
            if behind > 0
            else f"{other.label}{more}: as much; {limit(other)}"
        )


def limit(choice: Choice) -> str:
    """Return what keeps a placement from more: stages that can do no more, or the target that is missed next."""
    stages, most = " + ".join(choice.capacity.stages), choice.capacity.rate
    if most and choice.value >= _FULL * most:
        return f"{stages} is the bottleneck: its devices can do {most:.3g}/s at most, and do {choice.value:.3g}/s"
    workers, share = _busiest(choice)
    rate, missed = f"at {choice.value:.3g}/s", _missed(choice)
    if share >= _FULL:
        return f"{workers} is the bottleneck, {share:.0%} busy {rate}"
    busiest = f"{workers} is busiest, {share:.0%} of the time {rate}"
    return f"{missed}; {busiest}" if missed else busiest


def _busiest(choice: Choice) -> tuple[str, float]:
    """Return the stages of the busiest workers, and their busy part of the time."""
    hosted = dict.fromkeys(stages_of(part.stages) for part in split_parts(choice.placement))
    shares = {stages: min(1.0, sum(choice.seen.busy[stage] for stage in stages)) for stages in hosted}
    busiest = max(shares, key=shares.__getitem__)
    return " + ".join(busiest), shares[busiest]


def _missed(choice: Choice) -> str:
    """Return which target is missed at the next rate."""
    beyond = next((point for point in choice.curve if point.rate > choice.value), None)
    if beyond is None or max(beyond.first_late, beyond.tokens_late) < _LATE:
        return ""
    first, tokens = (
        f"the first token is late for {beyond.first_late:.0%}",
        f"streams are too slow for {beyond.tokens_late:.0%}",
    )
    return f"{first if beyond.first_late >= beyond.tokens_late else tokens} of the requests at {beyond.rate:.3g}/s"
