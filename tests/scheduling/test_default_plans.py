"""What default options plan, and when, in every placement: held to the last bit, so that it changes on purpose only."""

import hashlib
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from unifiedserve.config import EngineConfig
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import NAMED, read_placement
from unifiedserve.scheduling import budget_of
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Simulator, StageCosts, language
from unifiedserve.scheduling.targets import Targets
from unifiedserve.scheduling.turn import Decision, Facts, Turn

COSTS = StageCosts(
    decode_pass=0.0413,
    sequence=0.0021,
    context_token=1.1e-6,
    prefill_pass=0.0317,
    prompt_token=0.00113,
    prompt_context=1.3e-7,
    encode_batch=0.0171,
    visual_token=0.00193,
    encoder_layers=12,
    intake=0.0041,
    medium=0.0059,
    analysis=0.0083,
    message=0.0005,
    reply=0.0011,
)
UNIT = 64  # visual tokens

#: of all times and plans; where a default is changed on purpose, what the test finds is what is new
HELD = {
    "shared": "d36ffce1df2211ce",
    "monolithic": "2de8ae7331dc6995",
    "split": "efff50219be8a452",
    "ep-d": "df6ef739e47c53ec",
    "ed-p": "7ce1d1af3dea1f16",
    "e-p-d": "be410938da71d284",
    "one": "c2e95b37dbd54e83",
}


def arrivals() -> Iterator[Arrival]:
    choose = Random(11)
    for uid in range(40):
        ticket, generate = Ticket(uid, choose.uniform(0, 40)), choose.randint(1, 60)
        if uid % 4:
            yield Arrival(ticket, [choose.randint(1, 1500)], [], generate)
        else:
            units = choose.randint(1, 30)
            gaps = [10, *[0] * (units - 1), 20]
            yield Arrival(ticket, gaps, [UNIT] * units, generate, choose.uniform(0, 0.1), gop=4, media=1)


@pytest.mark.parametrize("placement", NAMED)
def test_default_options_plan_what_they_planned(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = hashlib.sha256()

    class Noted(Turn):
        """Notes what it decides, and when."""

        def take(self, facts: Facts) -> Decision:
            decision = super().take(facts)
            *work, pull, forgo, wait_until = decision.plan
            assert (pull, forgo) == ([], []), "all share one memory"
            found.update(msgspec.msgpack.encode((facts.now, (*work, wait_until))))
            return decision

    monkeypatch.setattr(language, "Turn", Noted)
    config, free = EngineConfig(), FreePages(1200, 400, 300)
    budget = budget_of(config, free.kv, COSTS.decode(1, 0))
    simulator = Simulator(
        read_placement(placement, range(2)), budget, free, arrivals(), COSTS, Cores(2), targets=Targets(config)
    )
    simulator.run()
    assert simulator.unfinished == []
    found.update(msgspec.msgpack.encode(sorted(simulator.tokens.items())))
    assert found.hexdigest()[:16] == HELD[placement]
