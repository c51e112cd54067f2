"""Choose what each worker hosts, by the work that waits for each stage (EPD §3.2.3: role switching).

Workers that decode media keep to that: the sandbox is around them alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from unifiedserve.messages.costs import Costs
from unifiedserve.placement import MODEL_STAGES, Instance, Placement, Stage

LOOK_SECONDS = 1.0  # from one look at the work to the next
_LEAST = 1.0  # seconds of work for each host of a stage; shorter work is not worth a change
_GAIN = 0.75  # of the longest work, at most, is to be left after a change
_SUSTAINED = 5.0  # seconds for which a change has to be the best one
_APART = 30.0  # seconds between two changes, and without work until workers go back


def work_left(left: Iterable[Mapping[Stage, int]], streams: Sequence[int], costs: Costs) -> dict[Stage, float]:
    """Return the seconds of work left for encode, prefill and decode, as measured lately.

    So many tokens are `left` of requests; the `streams` have so many each, and are held to go on for as many.
    """
    tokens = Counter[Stage]()
    for each in left:
        tokens.update(each)
    step = costs.decode / len(streams) if streams else 0.0  # they share it
    return {
        Stage.ENCODE: costs.visual_token * tokens[Stage.ENCODE],
        Stage.PREFILL: costs.prompt_token * tokens[Stage.PREFILL],
        Stage.DECODE: (step + costs.prompt_token) * sum(streams),
    }


def longest_work(placement: Placement, seconds: Mapping[Stage, float]) -> float:
    """Return the seconds until the last stage is done. Its hosts share its work.

    A host of several stages counts as a part of one for each.
    """
    return max(seconds.get(stage, 0.0) / _power(placement, stage) for stage in MODEL_STAGES)


def best_change(
    placement: Placement, seconds: Mapping[Stage, float], configured: Placement | None = None
) -> Instance | None:
    """Return an instance as it should become; None where no change gains much.

    Every stage keeps a host beside it, which serves while it changes. A memory has what its stages need as `configured`
    (None: as they are).
    """
    before = longest_work(placement, seconds)
    if before < _LEAST:
        return None
    changes = list(_changes(placement, configured or placement))
    best = min(changes, key=lambda each: longest_work(placement.changed(each), seconds), default=None)
    if best is None or longest_work(placement.changed(best), seconds) > _GAIN * before:
        return None
    return best


class RoleBalance:
    """Decide when a worker changes. It has no clock: times are monotonic seconds."""

    def __init__(self, configured: Placement) -> None:
        """Begin without work. After a while without any, the workers become `configured` again."""
        self._configured = configured
        self._wish: Instance | None = None
        self._since = 0.0
        self._changed = float("-inf")

    def take(self, now: float, placement: Placement, seconds: Mapping[Stage, float]) -> Instance | None:
        """Return an instance as it should become now; None: all stay as they are.

        `seconds` of work wait for each stage.
        """
        idle = not any(seconds.values())
        wish = self._way_back(placement) if idle else best_change(placement, seconds, self._configured)
        if wish != self._wish:
            self._wish, self._since = wish, now
        patience = _APART if idle else _SUSTAINED
        if wish is None or now - self._since < patience or now - self._changed < _APART:
            return None
        self._wish, self._changed = None, now
        return wish

    def _way_back(self, placement: Placement) -> Instance | None:
        """Return the first instance that can be as it was configured, and is not."""
        for instance, configured in zip(placement.instances, self._configured.instances, strict=True):
            if instance.stages != configured.stages and _is_free(placement, instance):
                return configured
        return None


def _changes(placement: Placement, configured: Placement) -> Iterator[Instance]:
    for instance in placement.instances:
        if Stage.VISION not in instance.stages and _is_free(placement, instance):
            for stage in MODEL_STAGES:
                if instance.stages != (stage,) and stage in configured.hosted_in(instance.memory):
                    yield msgspec.structs.replace(instance, stages=(stage,))


def _is_free(placement: Placement, instance: Instance) -> bool:
    """Return whether the others host all stages."""
    others = placement.without([instance.name])
    return all(others.hosts(stage) for stage in Stage)


def _power(placement: Placement, stage: Stage) -> float:
    return sum(1 / len(instance.stages) for instance in placement.instances if stage in instance.stages)
