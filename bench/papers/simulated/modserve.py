"""ModServe's Figures 14 to 18: a quarter of its 128 A100 under requests with its trace's statistics.

Monoliths have four GPUs each (tensor parallelism); apart, text instances have four and image instances one. What is in
the trace: two fifths of the requests are texts; images a request have steps at squares, cut at 16 (§5.1); images come
in bursts that texts know nothing of.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import ceil
from statistics import fmean
from typing import NamedTuple

import msgspec
import roofline
from simulated.figure import Claim, Figure, Panel
from simulated.requests import asked, length
from simulated.system import PLAIN, System
from simulated.targets import percentile, ttft

from unifiedserve.messages.ticket import Ticket
from unifiedserve.profiles import read_profile
from unifiedserve.scheduling.simulation import Arrival, Rules, StageCosts

QUARTER = 32  # GPUs
SHARD = 4  # GPUs of a monolith, and of a text instance
SECONDS = 90.0  # of requests
BURSTS = 0.25  # shape of the gaps between requests with images: a coefficient of variation of two
WITH_IMAGES = 0.6  # of all requests

#: images a request (Azure's LMM trace, cut at 16 as §5.1 has it)
IMAGES = ((1, 4, 9, 16), (0.66, 0.05, 0.15, 0.14))
TEXT, IMAGE_TEXT, OUTPUT = 780, 300, 100  # tokens, means


class Model(NamedTuple):
    """A model of the evaluation: tokens of an image, what its encoder gains by four GPUs, rates to try."""

    name: str
    profile: str
    image_tokens: int
    gain: float
    keeps_visual: bool
    rates: tuple[float, ...]

    @property
    def monolith(self) -> StageCosts:
        """Return what stages cost on four GPUs."""
        return _costs(self.profile)

    @property
    def apart(self) -> StageCosts:
        """Return what they cost where the encoder has one GPU, and the language model four."""
        return msgspec.structs.replace(self.monolith, visual_token=self.monolith.visual_token * self.gain)

    @property
    def rules(self) -> Rules:
        """Return what the model's family demands."""
        return Rules(keeps_visual=self.keeps_visual)


LLAMA = Model("Llama3.2-11B", "a100x4-llama-3.2-11b", 4 * 1601, 2.0, True, (2, 4, 6, 8, 10, 12, 16, 20, 24))
INTERNVL = Model("InternVL-26B", "a100x4-internvl2.5-26b", 1280, 2.5, False, (1, 2, 3, 4, 5, 6, 8, 10))
MODELS = (LLAMA, INTERNVL)
WHOLE = replace(PLAIN, prefill_tokens=8192)


@cache
def _costs(name: str) -> StageCosts:
    return read_profile(roofline.FOLDER / f"{name}.toml").costs


def monoliths(model: Model, gpus: int = QUARTER) -> System:
    """Return vLLM: every instance has all stages and four GPUs."""
    return System("vLLM", f"{gpus // SHARD}epd", model.monolith, WHOLE, rules=model.rules)


def modserve(model: Model, text: int = 5, image: int = 12) -> System:
    """Return ModServe with so many instances: images of a request are encoded in parallel, short requests go first."""
    budget = replace(WHOLE, order="shortest")
    return System("ModServe", f"{image}e+{text}pd", model.apart, budget, irp=True, rules=model.rules)


def decoupled(model: Model) -> System:
    """Return instances apart without the order or the routes of ModServe: a request has one encoder."""
    return modserve(model)._replace(name="decoupled", budget=WHOLE, irp=False)


def scheduled(model: Model) -> System:
    """Return instances apart in ModServe's order."""
    return modserve(model)._replace(name="decoupled, order", irp=False)


def requests(model: Model, rate: float, seconds: float = SECONDS, share: float = WITH_IMAGES) -> list[Arrival]:
    """Return requests: texts as a Poisson process, those with images in bursts."""
    choose = random.Random(0)
    texts = [(due, 0) for due in _times(choose, rate * (1 - share), seconds, 1.0)]
    images = [(due, choose.choices(*IMAGES)[0]) for due in _times(choose, rate * share, seconds, BURSTS)]
    found = []
    for uid, (due, count) in enumerate(sorted(texts + images)):
        text = length(choose, IMAGE_TEXT if count else TEXT, 1.5)
        found.append(asked(Ticket(uid, due), text, [model.image_tokens] * count, length(choose, OUTPUT, 1.5), count))
    return found


def _times(choose: random.Random, rate: float, seconds: float, shape: float) -> Iterator[float]:
    now = 0.0
    while rate and (now := now + choose.gammavariate(shape, 1 / (shape * rate))) < seconds:
        yield now


def first_tokens(system: System, arrivals: Sequence[Arrival]) -> list[float]:
    """Return the times to the first token (seconds)."""
    tokens = system.serve(arrivals)
    return [ttft(each, tokens[each.ticket.uid]) for each in arrivals]


def isolated(model: Model) -> float:
    """Return the TTFT (seconds) of a request with one image that a monolith has to itself (§5.1)."""
    costs = model.monolith
    prompt = IMAGE_TEXT + (0 if model.keeps_visual else model.image_tokens)
    return costs.encode(model.image_tokens) + costs.prefill(prompt, prompt**2 / 2)


FACTOR = 20.0  # the target's scale: enough for a request of 16 images alone on a monolith


def most(system: System, model: Model, factor: float = FACTOR) -> float:
    """Return the highest rate of those tried at which 99 % of first tokens come within the target."""
    best = 0.0
    for rate in model.rates:
        if percentile(_first(system, model, rate), 0.99) > factor * isolated(model):
            break
        best = rate
    return best


_kept: dict[tuple[str, str, str, float], list[float]] = {}


def _first(system: System, model: Model, rate: float) -> list[float]:
    key = (model.name, system.name, system.parts, rate)
    if key not in _kept:
        _kept[key] = first_tokens(system, requests(model, rate))
    return _kept[key]
