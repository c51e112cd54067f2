"""By when a first token is owed: what the request says, what the daemon says, or what it takes alone."""

import msgspec
import pytest

from unifiedserve.config import EngineConfig
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling.targets import Targets

TICKET = Ticket(7, 100.0, priority=2)


def learned(**options: float) -> Targets:
    """Return targets of a daemon that has measured 1 ms a prompt token and 2 ms a visual one."""
    targets = Targets(EngineConfig.of(**options))
    targets.learn(Costs(prompt_token=0.001))
    targets.learn(Costs(decode=0.05, visual_token=0.002))
    return targets


def test_a_target_follows_from_what_a_request_takes_alone() -> None:
    ticket = learned().ticket(TICKET, prompt_tokens=1500, encode_tokens=1000, visual_tokens=1000)
    assert ticket == msgspec.structs.replace(TICKET, work=pytest.approx(3.5), due=pytest.approx(100 + 5 * 3.5))


def test_nobody_is_owed_a_token_sooner_than_anyone_notices() -> None:
    assert learned().ticket(TICKET, 10, 0, 0).due == 100.5


def test_what_is_not_encoded_is_no_work_and_counts_for_the_daemons_target() -> None:
    ticket = learned(slo_ttft=2000, slo_ttft_visual=5).ticket(TICKET, 1500, encode_tokens=0, visual_tokens=1000)
    assert (ticket.work, ticket.due) == pytest.approx((1.5, 100 + 2 + 5))


def test_the_requests_own_target_goes_first() -> None:
    assert learned(slo_ttft=2000).ticket(TICKET, 1500, 1000, 1000, own=0.75).due == 100.75
