"""HydraInfer's figures: LLaVA on eight H800, with its targets, its limits and its courses of ten seconds.

What its code tells beside the paper: rates are those of one GPU; a course has ten seconds of requests; an instance runs
24 of them at most; a pass's budgets are found with prompts alone, without what they attend to or what runs beside them.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import roofline

from simulated.requests import asked, length, poisson
from simulated.system import PLAIN, System, pages
from simulated.targets import Point, Target, attainment, curve
from unifiedserve.messages.ticket import Ticket
from unifiedserve.profiles import HardwareProfile, read_profile
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, StageCosts

GPUS = 8
SECONDS = 10.0  # of requests
RUNNING = 24  # requests of an instance
CHUNK_LEAST = 16
RATES = (3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0)  # requests a second and GPU, as its code has them

#: visual tokens of LLaVA-NeXT for photographs of 4:3, 3:2, 16:9 and 1:1 over 672 x 672, by its cutting into tiles
NEXT_TOKENS = ((2340, 2144, 1899, 2928), (0.70, 0.15, 0.10, 0.05))
TEXT = 25  # tokens of a question


class Work(NamedTuple):
    """A data set with a model: visual tokens of an image, generated tokens (assumed: the paper draws them), targets."""

    name: str
    tokens: tuple[Sequence[int], Sequence[float]]
    generate: float
    target: Target

    def make(self, choose: random.Random, ticket: Ticket) -> Arrival:
        """Return a request, whose image is encoded as a whole."""
        [tokens] = choose.choices(*self.tokens)
        return asked(ticket, TEXT, [tokens], length(choose, self.generate))

    @property
    def most_tokens(self) -> int:
        """Return the tokens of a long request."""
        return max(self.tokens[0]) + TEXT + round(2 * self.generate)


TEXTCAPS = Work("TextCaps", NEXT_TOKENS, 140, Target(8.0, 0.08))
MME = Work("MME", NEXT_TOKENS, 5, Target(8.0, 0.14))
TEXTVQA = Work("TextVQA", NEXT_TOKENS, 40, Target(8.0, 0.12))
TEXTCAPS_15 = Work("TextCaps, LLaVA-1.5", ((576,), (1.0,)), 60, Target(0.25, 0.04))


@cache
def profile(name: str) -> HardwareProfile:
    """Return a profile of the paper's hardware."""
    return read_profile(roofline.FOLDER / f"{name}.toml")


NEXT, LLAVA_15 = "h800-llava-next-7b", "h800-llava-1.5-7b"


def stage_level(costs: StageCosts, tbt: float) -> Budget:
    """Return Algorithm 1's budgets as HydraInfer finds them: the largest passes of prompts alone within the target."""
    prompt = int((tbt - costs.prefill_pass) / costs.prompt_token)
    visual = int((tbt - costs.encode_batch) / costs.visual_token)
    return replace(PLAIN, prefill_tokens=prompt, encode_tokens=visual, max_running=RUNNING, scheduling="stage-level")


def by_measurement(tbt: float) -> Budget:
    """Return budgets of our own schedulers, which cut every step to the target by what steps are measured to take."""
    return Budget(
        prefill_tokens=8192,
        encode_tokens=8192,
        max_running=RUNNING,
        kv_page_tokens=PLAIN.kv_page_tokens,
        slo_tbt=tbt,
        fills=True,
        least_prompt=256,
        least_visual=256,
    )


def hydrainfer(parts: str, work: Work, model: str = NEXT, name: str = "") -> System:
    """Return HydraInfer with these instances."""
    found = profile(model)
    budget = stage_level(found.costs, work.target.tbt)
    kv = RUNNING * pages(work.most_tokens)
    return System(name or parts, parts, found.costs, budget, kv, found.interference, dual_streams=True)


def without_stage_level(work: Work, model: str = NEXT) -> System:
    """Return eight general instances whose batches have whole prompts and all images, in one stream."""
    costs = profile(model).costs
    budget = replace(PLAIN, prefill_tokens=max(work.tokens[0]), max_running=RUNNING)
    return System("no stage-level", "8epd", costs, budget, RUNNING * pages(work.most_tokens))


def vllm_v1(work: Work, model: str = NEXT) -> System:
    """Return eight instances of vLLM v1: sequences first, chunks of 2,048 tokens, images encoded for what is due."""
    costs = profile(model).costs
    budget = replace(PLAIN, prefill_tokens=2048, encode_tokens=2048)
    return System("vLLM v1", "8epd", costs, budget, 3000)


def attained(system: System, work: Work, rate: float, seed: int = 0) -> float:
    """Return the part of requests that hold their targets at a rate for each GPU."""
    arrivals = poisson(rate * system.devices, SECONDS, work.make, seed)
    return attainment(arrivals, system.serve(arrivals), work.target)


def over_rate(system: System, work: Work, rates: Sequence[float] = RATES) -> list[Point]:
    """Return the attainment over the rate."""
    return curve(lambda rate: attained(system, work, rate), rates)


def ep_d() -> Iterator[str]:
    """Yield the ratios of EP+D."""
    return (f"{ep}ep+{GPUS - ep}d" for ep in range(1, GPUS))


def ed_p() -> Iterator[str]:
    """Yield the ratios of ED+P."""
    return (f"{ed}ed+{GPUS - ed}p" for ed in range(1, GPUS))


def e_p_d() -> Iterator[str]:
    """Yield ratios of E+P+D with one or two encoders, which are never short of them."""
    return (f"{e}e+{p}p+{GPUS - e - p}d" for e in (1, 2) for p in range(1, GPUS - e))


METHODS = {"EP+D": ep_d, "ED+P": ed_p, "E+P+D": e_p_d}


#: ratios that leave no stage far behind
LIKELY = ("4ep+4d", "5ep+3d", "3ed+5p", "4ed+4p", "1e+3p+4d", "1e+4p+3d")


def best_of(work: Work, model: str = NEXT, rate: float = 10.0, candidates: Sequence[str] = LIKELY) -> str:
    """Return the instances that hold the targets best at a rate above what most can do."""
    return max(candidates, key=lambda parts: attained(hydrainfer(parts, work, model), work, rate))
