"""How many times faster than real time the simulator is, with ten instances at 60 % load.

Texts, images and videos come as a Poisson process, at 60 % of the rate that the busiest stage could hold. Times are CPU
seconds of one core. On GPUs decode steps alike run as one; for comparison each is simulated by itself, too.

    python bench/simulator_speed.py
"""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from unifiedserve.config import EngineConfig
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Placement, Stage, read_placement
from unifiedserve.scheduling.simulation import (
    Arrival,
    Cores,
    FreePages,
    Gpus,
    Hardware,
    Simulated,
    StageCosts,
    simulate,
)
from unifiedserve.scheduling.simulation.sequences import Sequences

RESULT = Path(__file__).parent / "results" / "simulator-speed.json"
LOAD = 0.6
REQUESTS = 400
STREAMS = 64  # that decode at once in a full instance

#: about what a 7B model takes on an A100, and what one of half a billion does on two cores
A100 = StageCosts(
    decode_pass=0.01,
    sequence=2e-5,
    context_token=3.5e-8,
    prefill_pass=0.0012,
    prompt_token=7.6e-5,
    prompt_context=3.3e-9,
    encode_batch=6e-4,
    visual_token=3e-5,
    message=5e-4,
    pull=0.001,
    pull_kv_page=3.7e-6,
    pull_visual_page=4.6e-7,
)
CPU = StageCosts(
    decode_pass=0.05,
    sequence=0.003,
    context_token=1e-6,
    prefill_pass=0.04,
    prompt_token=0.0015,
    prompt_context=1e-7,
    encode_batch=0.02,
    visual_token=0.003,
    encoder_layers=24,
    message=5e-4,
)
INTERFERENCE = {Stage.DECODE: {Stage.PREFILL: 1.9, Stage.ENCODE: 1.1}, Stage.PREFILL: {Stage.DECODE: 1.45}}
PAGES = FreePages(100_000, 100_000, 100_000)

CASES = {
    "a GPU each": ("v@cuda:0+v@cuda:1+" + "+".join(map("{}@cuda:{}".format, "eeeppddd", range(8))), A100, Gpus(8, 5)),
    "one GPU": ("2v@cuda:0+3e@cuda:0+2p@cuda:0+3d@cuda:0", A100, Gpus(1, 5, INTERFERENCE)),
    "all stages, a GPU each": ("+".join(f"vepd@cuda:{i}" for i in range(10)), A100, Gpus(10, 5, INTERFERENCE)),
    "two cores": ("2v+3e+2p+3d", CPU, Cores(2)),
}


def requests(seed: int) -> Iterator[Arrival]:
    """Yield requests that come one a second, on average: six texts and three images to each video."""
    choose, now = random.Random(seed), 0.0
    for uid in range(REQUESTS):
        now += choose.expovariate(1.0)
        ticket, generate = Ticket(uid, now), choose.randint(50, 300)
        kind = choose.choices(["text", "image", "video"], [6, 3, 1])[0]
        if kind == "text":
            yield Arrival(ticket, [choose.randint(60, 1500)], [], generate)
        elif kind == "image":
            yield Arrival(ticket, [20, 60], [1024], generate, decode=0.01, media=1, patch_pages=4)
        else:
            yield Arrival(ticket, [20, *[0] * 31, 60], [132] * 32, generate, decode=0.02, gop=4, media=1)


def seconds(arrivals: list[Arrival], costs: StageCosts) -> dict[Stage, float]:
    """Return what a request takes of an instance of each stage, on average, where steps are full."""
    prompt = sum(sum(each.gaps) + sum(each.units) for each in arrivals) / len(arrivals)
    visual = sum(sum(each.units) for each in arrivals) / len(arrivals)
    tokens = sum(each.generate for each in arrivals) / len(arrivals)
    return {
        Stage.ENCODE: visual * costs.visual_token,
        Stage.PREFILL: prompt * costs.prompt_token,
        Stage.DECODE: tokens * costs.decode(STREAMS, STREAMS * int(prompt)) / STREAMS,
    }


def rate(placement: Placement, arrivals: list[Arrival], costs: StageCosts, devices: int) -> float:
    """Return 60 % of the requests a second at which a stage, or all devices, have no time left."""
    own = seconds(arrivals, costs)
    stages = (len(placement.hosts(stage)) / took for stage, took in own.items())
    return LOAD * min(*stages, devices / sum(own.values()))


def measure(text: str, costs: StageCosts, sharing: Gpus | Cores) -> dict[str, Any]:
    """Simulate a case with and without stretches."""
    placement, arrivals = read_placement(text, range(2)), list(requests(1))
    each_second = rate(placement, arrivals, costs, sharing.count if isinstance(sharing, Gpus) else 1)
    due = [each._replace(ticket=Ticket(each.ticket.uid, each.ticket.arrival / each_second)) for each in arrivals]
    config, hardware = EngineConfig.of(placement=text), Hardware(costs, sharing, PAGES)

    def timed() -> tuple[Simulated, float]:
        start = time.process_time()
        return simulate(placement, hardware, due, config), time.process_time() - start

    found, took = min((timed() for _ in range(3)), key=lambda run: run[1])
    with patch.object(Sequences, "steps", lambda self, keys: 1):
        _, stepwise = timed()
    return {
        "placement": text,
        "requests_a_second": each_second,
        "simulated_seconds": found.seconds,
        "cpu_seconds": took,
        "times_real_time": found.seconds / took,
        "times_real_time_stepwise": found.seconds / stepwise,
        "requests_a_cpu_second": len(due) / took,
        "busy": {stage.value: busy for stage, busy in found.busy.items()},
    }


def main() -> None:
    """Measure all cases, print and save them."""
    table = Table("ten instances", "requests/s", "times real time", "each step by itself", "requests/CPU s")
    found = {name: measure(*case) for name, case in CASES.items()}
    for name, case in found.items():
        numbers = ("requests_a_second", "times_real_time", "times_real_time_stepwise", "requests_a_cpu_second")
        table.add_row(name, *(f"{case[number]:.3g}" for number in numbers))
    RESULT.write_text(json.dumps({"machine": describe_machine(), "cases": found}, indent=2) + "\n")
    Console().print(table)


if __name__ == "__main__":
    main()
