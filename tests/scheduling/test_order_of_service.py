"""Texts do not wait for a video, and no video for a flood of texts: seen in simulated time."""

from statistics import median

import msgspec
import pytest

from unifiedserve.config import EngineConfig, Order
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import read_placement
from unifiedserve.scheduling import budget_of
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Simulator, StageCosts
from unifiedserve.scheduling.targets import Targets

COSTS = StageCosts(
    decode_pass=0.04,
    sequence=0.002,
    prefill_pass=0.05,
    prompt_token=0.003,
    encode_batch=0.02,
    visual_token=0.003,
    encoder_layers=24,
    intake=0.01,
    message=0.0005,
)
WARM_UP, START = 60.0, 100.0  # seconds: of requests from which the costs are learnt, and of what is measured
TEXT, UNIT, UNITS = 100, 156, 64
VIDEO = 0  # uid
ALONE = COSTS.intake + COSTS.prefill(TEXT, 0)  # seconds to a text's first token
STEP = 0.5  # seconds that a step with a long prompt may take


def text(uid: int, arrival: float) -> Arrival:
    return Arrival(Ticket(uid, arrival), [TEXT], [], generate=2)


def video(uid: int, arrival: float, units: int = UNITS) -> Arrival:
    return Arrival(Ticket(uid, arrival), [10] + [0] * (units - 1) + [20], [UNIT] * units, 2, decode=0.05, gop=4)


def ttfts(order: Order, arrivals: list[Arrival]) -> dict[int, float]:
    """Return the seconds to the first tokens on an engine that has seen requests before."""
    config = EngineConfig.of(order=order)
    free = FreePages(10_000, 10_000, 10_000)
    warm_up = [text(-1, 0.0), video(-2, 10.0, units=4)]
    budget, targets = budget_of(config, free.kv, COSTS.decode(1, 0)), Targets(config)
    simulator = Simulator(
        read_placement("shared", ()), budget, free, [*warm_up, *arrivals], COSTS, Cores(2), targets=targets
    )
    simulator.run()
    assert simulator.unfinished == []
    tokens = simulator.tokens
    return {a.ticket.uid: tokens[a.ticket.uid][0] - a.ticket.arrival for a in arrivals}


def texts_beside_a_video(order: Order) -> tuple[list[float], float]:
    """Return the seconds to first tokens of texts in every phase of a video, and of the video."""
    found = ttfts(order, [video(VIDEO, START), *(text(uid, START + 3.1 * uid) for uid in range(1, 21))])
    in_the_video = found.pop(VIDEO)
    return list(found.values()), in_the_video


def beside_a_flood(order: Order, texts: int) -> float:
    """Return the seconds to a video's first token, beside texts that come as fast as they can be served."""
    flood = [text(uid, START + ALONE * uid) for uid in range(1, texts + 1)]
    return ttfts(order, [video(VIDEO, START, units=8), *flood])[VIDEO]


@pytest.mark.parametrize("order", ["slack", "shortest"])
def test_texts_in_every_phase_of_a_video_hardly_wait(order: Order) -> None:
    texts, in_the_video = texts_beside_a_video(order)
    assert median(texts) <= 1.5 * ALONE
    assert max(texts) <= ALONE + STEP
    video_alone = ttfts(order, [video(VIDEO, START)])[VIDEO]
    assert in_the_video <= 1.02 * (video_alone + len(texts) * ALONE), "it waits for their work, and no longer"


def test_first_come_first_served_lets_texts_wait_for_the_video() -> None:
    texts, in_the_video = texts_beside_a_video("fcfs")
    assert median(texts) > 50 * ALONE
    assert max(texts) > in_the_video / 2


def test_texts_go_in_between_layers_of_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one layer, a text that comes during a batch waits for its end."""
    among_layers, _ = texts_beside_a_video("slack")
    monkeypatch.setattr(f"{__name__}.COSTS", msgspec.structs.replace(COSTS, encoder_layers=1))
    behind_batches, _ = texts_beside_a_video("slack")
    assert max(behind_batches) > 2 * max(among_layers)
    assert median(behind_batches) > 1.5 * median(among_layers)


@pytest.mark.parametrize("order", ["slack", "shortest"])
def test_a_flood_of_texts_delays_a_video_for_a_time_only(order: Order) -> None:
    """Who comes after a moment that the video's own work fixes does not overtake it any more."""
    few, many, more = (beside_a_flood(order, texts) for texts in (200, 400, 800))
    assert few < many == pytest.approx(more, rel=0.01)
    assert many < 800 * ALONE / 2
