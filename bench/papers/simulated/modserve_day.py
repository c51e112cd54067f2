"""ModServe's Figure 16 by the code that serves: pools that scale over a day with a burst of images, and their router.

Of each hour so many seconds are simulated, at its rate. Requests have the trace's statistics (`modserve.py`).
"""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from simulated.cluster import TICK, Apart, Day, Demand, Question, Whole
from simulated.figure import Claim, Figure, Panel
from simulated.modserve import (
    BURSTS,
    DAY,
    IMAGE_TEXT,
    IMAGES,
    MODELS,
    QUARTER,
    REQUESTS_A_MINUTE,
    SHARD,
    TEXT,
    UTILISATION,
    WITH_IMAGES,
    Hour,
    Model,
    less,
    times,
)
from simulated.requests import length
from simulated.targets import percentile
from unifiedserve.cluster.routing import Policy

SECONDS = 450.0  # of each hour
SLICES = 20  # of an hour, each with a rate of its own
ANSWERS = {False: 146, True: 80}  # tokens, medians of texts and of requests with images (Azure's notebook)
GPU_HOUR = 4.10  # US dollars for an A100 with 80 GB, on demand: an eighth of Azure's ND96amsr v4
IN_TIME = 0.99


def questions(model: Model, seconds: float = SECONDS) -> list[Question]:
    """Return a day's questions: in the hour with the most images they keep monoliths on all GPUs busy."""
    choose, (counts, shares) = random.Random(0), IMAGES
    scale = UTILISATION * QUARTER / SHARD / max(map(Hour(model).on_monoliths, DAY))
    mean = sum(count * share for count, share in zip(counts, shares, strict=True))
    found, slice_ = [], seconds / SLICES
    for number, a_minute in enumerate(_rates()):
        for due in times(choose, scale * REQUESTS_A_MINUTE * (1 - WITH_IMAGES) / 60, slice_, 1.0):
            found.append(Question(number * slice_ + due, length(choose, TEXT, 1.5), 0, length(choose, ANSWERS[False])))
        for due in times(choose, scale * a_minute / mean / 60, slice_, BURSTS):
            text, answer = length(choose, IMAGE_TEXT, 1.5), length(choose, ANSWERS[True])
            found.append(Question(number * slice_ + due, text, choose.choices(counts, shares)[0], answer))
    return sorted(found)


def _rates() -> Iterator[float]:
    """Yield the images a minute in each slice of the day, along lines from hour to hour."""
    for before, after in pairwise((*DAY, DAY[-1])):
        for number in range(SLICES):
            yield before + (after - before) * number / SLICES


class System(NamedTuple):
    """A shape of the cluster, and the policy of its router."""

    name: str
    begin: Callable[[Model], Whole | Apart]


def _whole(policy: Policy) -> Callable[[Model], Whole]:
    return lambda model: Whole(_demand(model), policy, SHARD)


def _apart(policy: Policy) -> Callable[[Model], Apart]:
    return lambda model: Apart(_demand(model), policy, SHARD, model.apart)


def _demand(model: Model) -> Demand:
    return Demand(model.monolith, model.image_tokens, not model.keeps_visual)


SYSTEMS = (
    System("whole engines, round robin", _whole(Policy.ROUND_ROBIN)),
    System("whole engines, by cost", _whole(Policy.COST)),
    System("stage pools, round robin", _apart(Policy.ROUND_ROBIN)),
    System("stage pools, by cost", _apart(Policy.COST)),
)


def gpu_hours(day: Day, seconds: float = SECONDS) -> float:
    """Return the GPU-hours of a day of which so many seconds of each hour were simulated."""
    return sum(day.gpus) * TICK / 3600 * (3600 / seconds)


def dollars(day: Day) -> float:
    """Return what a million requests cost."""
    return sum(day.gpus) * TICK / 3600 * GPU_HOUR / len(day.served) * 1e6


def in_time(day: Day) -> float:
    """Return the part of first tokens that came before they were due."""
    return fmean(each.first <= each.due for each in day.served)


def figure() -> Figure:
    """Return the GPUs of a day by shape and policy, what a million requests cost, and how first tokens came."""
    panels, claims = [], []
    for model, paper in zip(MODELS, (41.3, 25.0), strict=True):
        asked = questions(model)
        days = {system.name: system.begin(model).serve(asked) for system in SYSTEMS}
        lines: dict[str, list[tuple[float | str, float]]] = {
            name: [(hour, fmean(day.gpus[int(hour * SECONDS) : int((hour + 1) * SECONDS)])) for hour in range(len(DAY))]
            for name, day in days.items()
        }
        panels.append(Panel(title=model.name, x="hour", y="GPUs", lines=lines))
        hours = {name: gpu_hours(day) for name, day in days.items()}
        for other in list(hours)[:3]:
            number = paper if other == "whole engines, round robin" else "not in the paper"
            claims.append(Claim(f"{model.name}: fewer GPU hours than {other}, %",
                                less(hours["stage pools, by cost"], hours[other]), number))  # fmt: skip
        for name, day in days.items():
            slower = percentile([each.first / each.alone for each in day.served], IN_TIME)
            told = f"{dollars(day):.0f}, {in_time(day):.2%}, {slower:.1f}"
            claims.append(Claim(f"{model.name}, {name}: USD a million requests, in time, p99 over alone", told, "-"))
    return Figure(
        name="modserve-16-routed",
        paper="ModServe Fig. 16",
        shows="the same day by our router and scaling",
        panels=panels,
        claims=claims,
        note=_NOTE,
    )


_NOTE = (
    "Each node is a queue, first come, first served, that takes as long as the profiles say; answers take their part "
    "of decode steps of 64 sequences (assumed). Pools scale as `cluster/scaling.py` has it, by load and by the part of "
    "first tokens within five times what a request takes alone; a node serves a minute after it was asked for "
    "(assumed). A quarter of the cluster, and seven and a half minutes of each hour. Dollars are those of an A100 on "
    "demand. The trace itself is not here: hours are read off its figure, and requests have its shares of images."
)

FIGURES = {"modserve-16-routed": figure}
