"""A request's place: what it owes and how much work it is, by what work has cost and what need not be done again."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from unifiedserve.config import EngineConfig
from unifiedserve.engine.requests.place import place, work_of
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import PrefillRequest, Reuse
from unifiedserve.scheduling import Targets

ARRIVAL = 100.0
COSTS = Costs(prompt_token=0.001, visual_token=0.004)


def active(slo_ttft: float | None = None, *, begun: bool = False) -> ActiveRequest:
    asked = SimpleNamespace(request=SimpleNamespace(slo_ttft=slo_ttft))
    answer = SimpleNamespace(last_token=1.0 if begun else None)
    contents = SimpleNamespace(page_tokens=16)
    return ActiveRequest(cast(Any, asked), ARRIVAL, [cast(Any, answer)], contents=cast(Any, contents))


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
    made = Targets(EngineConfig.of(**options))
    made.learn(COSTS)
    return made


def placed(request: ActiveRequest, message: PrefillRequest, by: Targets) -> Ticket:
    return place(request, message.ticket, work_of(request, message), by)


def test_its_own_target_goes_before_the_daemons() -> None:
    ticket = placed(active(0.25), sent(1050, units=20), targets(slo_ttft=800))
    assert (ticket.uid, ticket.arrival, ticket.priority, ticket.due) == (7, ARRIVAL, -1, ARRIVAL + 0.25)


def test_all_visual_tokens_count_for_the_daemons_target() -> None:
    reuse = Reuse(units={5: Pages()})
    ticket = placed(active(), sent(1050, units=20, reuse=reuse), targets(slo_ttft=800, slo_ttft_visual=3))
    assert ticket.due == pytest.approx(ARRIVAL + 0.8 + 3.0)


def test_what_is_cached_is_no_work() -> None:
    """Two pages of the prompt are there, and with them three units; one more has its visual tokens."""
    reuse = Reuse(prefix=Pages((1, 2), (0, 0)), covered=3, units={5: Pages()})
    ticket = placed(active(), sent(1000, units=20, reuse=reuse), targets())
    assert ticket.work == pytest.approx(0.001 * (1000 - 2 * 16) + 0.004 * 16 * 50)


def test_a_stream_that_has_begun_is_owed_its_next_token_at_once() -> None:
    assert placed(active(begun=True), sent(500), targets()).due == ARRIVAL
