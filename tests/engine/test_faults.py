"""Faults of every kind strike a running engine's workers, one after the other, while requests of every kind run."""

import os
from collections.abc import Iterator

import psutil
import pytest

from bench.campaign.faults.kinds import AT_FULL_MEMORY, FAULTS, workers_with_faults
from bench.campaign.faults.trial import Trial, case, engine, expected
from ipc_buffers import list_arenas

STREAM_TOKENS = 60
ONE, SEVERAL = "shared", "e+p@mem1+d@mem2"  # memories
PATCHES = {ONE: 2, SEVERAL: 4}  # MiB: in one memory, less than a video needs
SEED = 1
STOPPED = [fault for fault in FAULTS if fault.name == "SIGSTOP"]  # costs seconds, until it is noticed
QUICK = [fault for fault in FAULTS if fault not in (*STOPPED, AT_FULL_MEMORY) and fault.name != "nothing"]
STRUCK = {ONE: [QUICK] * 33 + [STOPPED, [AT_FULL_MEMORY]], SEVERAL: [QUICK] * 14 + [[AT_FULL_MEMORY]]}

pytestmark = pytest.mark.xdist_group("faults")


@pytest.fixture(scope="module")
def faulty() -> Iterator[None]:
    with workers_with_faults():
        yield


def children() -> set[psutil.Process]:
    """Processes of engines, less what all engines of this process start their workers from."""
    return {each for each in psutil.Process().children(recursive=True) if each.name() != "us:zygote"}


def segments() -> set[str]:
    """Shared memory of engines of this process; those of other tests may live."""
    return {each.name for each in list_arenas() if f"{os.getpid()}-" in each.name}


@pytest.mark.parametrize("placement", STRUCK)
@pytest.mark.usefixtures("faulty")
async def test_each_request_gets_its_answer_or_one_clear_error_and_nothing_is_left(placement: str) -> None:
    """An answer after a fault is that before the first one; the last fault ends the engine."""
    processes, before = children(), segments()
    cases = [case(SEED, index, faults) for index, faults in enumerate(STRUCK[placement])]
    async with engine(placement, 8, PATCHES[placement]) as own:
        trial = Trial(own, await expected(own, STREAM_TOKENS), streams=1, stream_tokens=STREAM_TOKENS)
        seen = [await trial.run(each) for each in cases]
        assert own.healthy is False
    assert sum(each.replaced for each in seen) > len(cases) / 2
    assert sum(each.statuses.get("exact", 0) for each in seen) > 2 * len(cases)
    assert segments() <= before
    _, alive = psutil.wait_procs(children() - processes, timeout=120)
    assert not alive
