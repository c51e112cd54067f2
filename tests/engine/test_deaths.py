"""Every worker of every kind of placement ends in every way while others work: it costs its worker only."""

import signal
from collections.abc import Callable

import pytest
from daemon import Daemon
from ended_workers import NAMES, check_after_a_death
from media import Clip
from questions import TOKENS, Question, question
from reference import Reference

from unifiedserve.placement import read_placement

PLACEMENTS = ["shared", "monolithic", "ed+p", "2v+2e+2p+2d", "2e+2p@mem1+2d@mem2"]
SIGNALS = [signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGSTOP]
WORKERS = [(placement, each.name) for placement in PLACEMENTS for each in read_placement(placement, ()).instances]

pytestmark = [pytest.mark.daemon("any of its workers ends", worker_timeout=3.0), pytest.mark.long]


@pytest.mark.parametrize(("placement", "instance"), WORKERS)
@pytest.mark.parametrize("how", SIGNALS, ids=lambda how: how.name)
def test_nothing_is_lost_and_no_other_worker_ends(
    daemon: Daemon, clips: Callable[[int], Clip], hf: Reference, placement: str, instance: str, how: signal.Signals
) -> None:
    asked: list[Question] = [question(name, clips) for name in NAMES]
    check_after_a_death(daemon, asked, [hf.generate(each.case, TOKENS) for each in asked], instance, how)
