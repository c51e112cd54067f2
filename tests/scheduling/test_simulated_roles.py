"""Simulated workers change what they host by themselves, as real ones do, and first tokens come sooner."""

from functools import cache
from statistics import quantiles

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage, read_placement
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Simulator, StageCosts

COSTS = StageCosts(
    decode_pass=0.003,
    sequence=0.0002,
    prefill_pass=0.003,
    prompt_token=0.0002,
    encode_batch=0.002,
    visual_token=0.0003,
    message=0.0005,
    worker_start=1.0,
)
BUDGET = Budget(prefill_tokens=512, encode_tokens=512, max_running=64, kv_page_tokens=16)
PLACEMENT = "1v@0+1e@1+1e@2+1p@3+1d@4+1d@5"
IMAGES, TEXTS = 40, 240
SHIFT = 60.0  # seconds, when prompts of texts come in place of images
PAGES = 20_000


def arrivals() -> list[Arrival]:
    """Images that keep both encoders busy, then texts that are more than one host of prefill can do; few streams."""
    images = [Arrival(Ticket(uid, 1.5 * uid), [8, 8], [1000], 8, decode=0.01, media=1) for uid in range(IMAGES)]
    texts = [Arrival(Ticket(IMAGES + i, SHIFT + 0.6 * i), [1000], [], 200 if i % 8 == 0 else 8) for i in range(TEXTS)]
    return images + texts


@cache
def simulated(roles: bool) -> Simulator:
    placement = read_placement(PLACEMENT, range(6))
    free = FreePages(PAGES, PAGES, PAGES)
    simulator = Simulator(placement, BUDGET, free, arrivals(), COSTS, Cores(6), roles=roles)
    simulator.run()
    return simulator


def p90(simulator: Simulator) -> float:
    arrived = {job.ticket.uid: job.ticket.arrival for job in arrivals()}
    return quantiles((tokens[0] - arrived[uid] for uid, tokens in simulator.tokens.items()), n=10)[-1]


def test_an_encoder_takes_over_prompts_when_they_are_what_waits() -> None:
    changed = [each for each in simulated(True).changed if each.began > SHIFT]
    assert any(each.instance.stages == (Stage.PREFILL,) for each in changed)
    assert all(each.ended >= each.began + COSTS.worker_start for each in changed)
    assert p90(simulated(True)) < p90(simulated(False))


def test_workers_of_stages_with_one_host_stay() -> None:
    placement = read_placement("e-p-d", range(6))
    free = FreePages(PAGES, PAGES, PAGES)
    simulator = Simulator(placement, BUDGET, free, arrivals()[:60], COSTS, Cores(6), roles=True)
    simulator.run()
    assert (simulator.changed, simulator.unfinished) == ([], [])


def test_every_token_comes_and_every_page_is_free() -> None:
    for roles in (True, False):
        assert simulated(roles).unfinished == []
        (free,) = simulated(roles).frees.values()
        assert (free.kv, free.visual, free.patch) == (PAGES, PAGES, PAGES)
