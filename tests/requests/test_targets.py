"""What a request owes and how much work it is, from what work has cost and what need not be done again."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from unifiedserve.config import EngineConfig
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.targets import Targets
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import PrefillRequest, Reuse

ARRIVAL = 100.0
COSTS = Costs(prompt_token=0.001, visual_token=0.004)


def active(slo_ttft: float | None = None, *, begun: bool = False) -> ActiveRequest:
    asked = SimpleNamespace(request=SimpleNamespace(slo_ttft=slo_ttft))
    answer = SimpleNamespace(last_token=1.0 if begun else None)
    return ActiveRequest(planned=cast(Any, asked), arrival=ARRIVAL, answers=[cast(Any, answer)])


def sent(tokens: int, units: int = 0, reuse: Reuse = Reuse()) -> PrefillRequest:  # noqa: B008
    """A prompt with a video of so many units of 50 tokens."""
    plan = cast(MediaPlan, SimpleNamespace(units=units, unit_tokens=lambda _: 50))
    return PrefillRequest(
        ticket=Ticket(7, ARRIVAL, -1),
        token_ids=list(range(tokens)),
        num_prompt=tokens,
        media=[plan],
        sampling=SamplingParams(),
        indices=[0],
        reuse=reuse,
    )


def targets(**options: Any) -> Targets:
    made = Targets(EngineConfig(**options))
    made.learn(COSTS)
    return made


def test_by_default_five_times_what_it_takes_alone() -> None:
    ticket = targets().ticket(active(), sent(1200, units=20))
    assert ticket.work == pytest.approx(1.2 + 4.0)
    assert ticket.due == pytest.approx(ARRIVAL + 5 * 5.2)
    assert (ticket.uid, ticket.arrival, ticket.priority) == (7, ARRIVAL, -1)


def test_nobody_is_hurried_for_less_than_is_noticed() -> None:
    assert targets().ticket(active(), sent(10)).due == ARRIVAL + 0.5


def test_a_video_gets_more_time_than_a_text_by_the_daemons_target() -> None:
    given = targets(slo_ttft=800, slo_ttft_visual=3)
    assert given.ticket(active(), sent(50)).due == pytest.approx(ARRIVAL + 0.8)
    assert given.ticket(active(), sent(1050, units=20)).due == pytest.approx(ARRIVAL + 0.8 + 3.0)


def test_a_requests_own_target_goes_before_it() -> None:
    assert targets(slo_ttft=800).ticket(active(0.25), sent(1050, units=20)).due == ARRIVAL + 0.25


def test_what_is_cached_is_no_work() -> None:
    """Two pages of the prompt are there, and with them three units; one more has its visual tokens."""
    reuse = Reuse(prefix=Pages((1, 2), (0, 0)), covered=3, units={5: Pages()})
    ticket = targets().ticket(active(), sent(1000, units=20, reuse=reuse))
    assert ticket.work == pytest.approx(0.001 * (1000 - 2 * 16) + 0.004 * 16 * 50)


def test_a_stream_that_has_begun_is_owed_its_next_token_at_once() -> None:
    assert targets().ticket(active(begun=True), sent(500)).due == ARRIVAL


def test_what_one_worker_does_not_know_another_may() -> None:
    made = Targets(EngineConfig())
    made.learn(Costs(decode=0.05))
    made.learn(COSTS)
    made.learn(Costs(decode=0.06))
    assert made.ticket(active(), sent(1000)).work == pytest.approx(1.0)
