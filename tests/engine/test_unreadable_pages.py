"""Where pages of another memory cannot be read, requests end with an error, and later ones are answered."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.campaign.faults.load import mixed
from bench.campaign.faults.trial import Client, Trial, engine
from unifiedserve.engine.requests import failed_reads
from unifiedserve.engine.requests.failed_reads import FailedReads
from unifiedserve.errors import ErrorKind, RequestError

VIDEO = next(each for each in mixed() if each.name == "video")

pytestmark = pytest.mark.xdist_group("faults")


@contextmanager
def opening_nothing(pid: int) -> Iterator[None]:
    """Let a process open no more files, as it must to map what it has not mapped."""
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, usual[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


@pytest.mark.parametrize("instance", ["prefill", "decode"])
async def test_a_worker_that_cannot_map_them(instance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It maps another memory when it first reads from there."""
    monkeypatch.setattr(failed_reads, "_SECONDS", 0.0)  # a token comes with each attempt: in time all of the answer
    async with engine("e+p@mem1+d@mem2", patch_buffer_mib=4) as own:
        before = own.observation.worker_pids()
        await Trial(own, [], 0, 0).settle(instance, before[instance])  # its start is over
        with opening_nothing(before[instance]):
            with pytest.raises(RequestError, match="could not be read from another memory") as caught:
                await Client(own, VIDEO, "sooner").run()
            assert caught.value.kind is ErrorKind.INTERNAL
        later, again = (Client(own, VIDEO, name) for name in ("later", "again"))
        await later.run()
        await again.run()
        assert later.answers == again.answers != [[]]
        assert own.observation.worker_pids() == before
        await own.wait_for(lambda: not own.observation.in_flight)
        own.observation.check_integrity()


def test_failures_are_in_vain_when_they_are_many_and_last() -> None:
    tenth, second = FailedReads(), FailedReads()
    assert [tenth.note(at / 10) for at in range(101)] == [False] * 100 + [True]
    assert [second.note(at * 3.0) for at in range(5)] == [False] * 4 + [True]


def test_failures_far_apart_are_not_added_up() -> None:
    reads = FailedReads()
    assert not any(reads.note(at * 61.0) for at in range(20))
