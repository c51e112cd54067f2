"""Whole runs: on time whatever the server does, ended early for a reason, and what they say of themselves."""

import asyncio
import io
from typing import Any

import pytest
from chat_server import ChatServer, Exchange, refuse, say, served
from clocks import ManualClock
from pieces import http, manner, plan, request
from rich.console import Console

from unifiedserve.bench.records import Record, Run, Timing
from unifiedserve.bench.run.loops import closed_loop
from unifiedserve.bench.run.measure import measure
from unifiedserve.bench.run.plan import Plan
from unifiedserve.bench.run.progress import Bar, shown
from unifiedserve.bench.run.timekeeping import Timekeeper, cautions
from unifiedserve.errors import ConfigError


async def run(server: ChatServer, planned: Plan, **fields: Any) -> Run:
    async with http(server.url) as client:
        return await measure(client, planned, manner(server.url), **fields)


async def test_all_are_sent_when_due_though_none_is_answered() -> None:
    """A client that waits for answers would wait for ever here: the server answers nobody before the last has come."""
    count = 40
    all_here = asyncio.Event()

    async def block(exchange: Exchange) -> None:
        if len(server.seen) == count:
            all_here.set()
        await all_here.wait()
        await say(exchange)

    dues = [number / 200 for number in range(count)]
    async with served(block) as server:
        found = await run(server, plan(*dues))
    assert [record.error for record in found.records] == [None] * count
    assert sorted(record.due for record in found.records) == dues
    last = max(record.sent for record in found.records)
    assert all(record.token_times[0] >= last for record in found.records)  # the wait is in every one's latency
    assert all(record.sent >= record.due for record in found.records)


async def test_so_many_users_and_no_more() -> None:
    under_way = most = 0

    async def count(exchange: Exchange) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await say(exchange)
        under_way -= 1

    async with served(count) as server:
        found = await run(server, plan(*[0.0] * 12, users=3))
    assert len(found.records) == 12
    assert most <= 3
    assert all(record.error is None and record.sent >= record.due for record in found.records)


async def test_users_begin_nothing_after_the_end() -> None:
    clock = ManualClock()
    held: list[str] = []

    async def hold(asked: Any, due: float) -> None:
        held.append(asked.id)
        clock.time += 1.0

    await closed_loop([request(f"r{number}") for number in range(9)], 1, hold, clock, until=2.5)
    assert held == ["r0", "r1", "r2"]


async def test_a_schedule_ends_with_its_time() -> None:
    async with served(say) as server:
        found = await run(server, plan(0.0, 0.01, 99.0, seconds=0.5))
    assert len(found.records) == 2


async def test_warm_up_does_not_count() -> None:
    async with served(say) as server:
        found = await run(server, plan(0.0, warmup=[request("w1"), request("w2")]))
    assert ([record.request for record in found.records], len(server.seen)) == (["r0"], 3)


async def test_a_password_in_the_url_is_not_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(say) as server, http(server.url) as client:
        url = server.url.replace("://", "://anne:secret@")
        monkeypatch.setattr("sys.argv", ["unifiedserve", "bench", f"--url={url}/v1", "a@b"])
        found = await measure(client, plan(0.0), manner(url))
    assert (found.url, found.command[2:]) == (server.url, [f"--url={server.url}/v1", "a@b"])


async def test_a_warm_up_that_fails_ends_it_all() -> None:
    async with served(refuse(401, "no key")) as server:
        with pytest.raises(ConfigError, match=r"the warm-up failed.*status 401: no key"):
            await run(server, plan(0.0, warmup=[request("w")]))
    assert len(server.seen) == 1


async def test_if_all_are_refused_the_run_stops_with_the_servers_words() -> None:
    async with served(refuse(400, "bad model")) as server:
        found = await run(server, plan(*[0.0] * 8, *[3600.0] * 8))
    assert len(found.records) == 8
    assert found.interrupted == "none of the first 8 requests was answered: status 400: bad model"


async def test_a_server_that_dies_midway_leaves_a_partial_run() -> None:
    async def die_in_the_second(exchange: Exchange) -> None:
        if len(server.seen) < 2:
            await say(exchange)
        else:
            await server.die()

    async with served(die_in_the_second) as server:
        found = await run(server, plan(*[0.0] * 20, 3600.0, users=1))
    assert "the server is gone: ConnectError" in (found.interrupted or "")
    assert found.records[0].error is None
    assert len(found.records) < 20


async def test_cancelled_it_tells_what_there_is() -> None:
    second = asyncio.Event()

    async def hang(exchange: Exchange) -> None:
        if len(server.seen) == 1:
            await say(exchange)
        else:
            second.set()
            await asyncio.Event().wait()

    async with served(hang) as server:
        running = asyncio.create_task(run(server, plan(*[0.0] * 3, users=1)))
        await second.wait()
        running.cancel()
        found = await running
    assert found.interrupted == "stopped by Ctrl-C"
    assert [record.error for record in found.records] == [None, "cut off: the run ended before the answer"]
    assert found.timing is not None


async def test_the_run_tells_its_own_timing() -> None:
    async with served(say) as server:
        found = await run(server, plan(*[0.0] * 5))
    timing = found.timing
    assert timing is not None
    assert 0 <= timing.late_p50 <= timing.late_p99 <= timing.late_max
    assert timing.cpu > 0


def test_lateness_is_from_when_requests_were_due() -> None:
    records = [Record(request="r", kind="text", due=1.0, sent=1.0 + late) for late in (0.0, 0.1, 0.3)]
    timing = Timekeeper(ManualClock()).timing(records, None)
    assert (timing.late_p50, timing.late_max) == pytest.approx((0.1, 0.3))


async def test_what_the_client_does_after_a_run_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, used = ManualClock(), [5.0]
    monkeypatch.setattr("time.process_time", lambda: used[0])
    keeper = Timekeeper(clock)
    clock.read.clear()
    measuring = asyncio.create_task(keeper.run())
    await clock.read.wait()
    clock.time, used[0] = 10.0, 14.5
    measuring.cancel()
    await asyncio.wait([measuring])
    clock.time = 100.0  # the server's trace is awaited
    timing = keeper.timing([], None)
    assert timing.cpu == pytest.approx(0.95)
    assert any("95% of a core" in caution for caution in cautions(timing))


GOOD = {"late_p50": 0.001, "late_p99": 0.002, "late_max": 0.01, "loop_late_p99": 0.002, "cpu": 0.1}


@pytest.mark.parametrize(
    ("measured", "caution"),
    [
        ({"late_p99": 0.5}, "cannot send at the rate"),
        ({"cpu": 0.97}, "97% of a core"),
        ({"loop_late_p99": 0.2}, "times of tokens are off"),
        ({"ttft_here": 2.05, "ttft_there": 2.0}, "2.050 s here and 2.000 s by the server"),
    ],
    ids=["late", "busy", "loop", "apart"],
)
def test_a_client_that_lags_says_so(measured: dict[str, float], caution: str) -> None:
    assert cautions(Timing(**GOOD, ttft_here=2.03, ttft_there=2.0)) == []
    assert cautions(Timing(**GOOD, ttft_here=0.02, ttft_there=0.01)) == []
    (said,) = cautions(Timing(**GOOD | measured))
    assert caution in said


def test_a_path_that_looks_like_markup_is_shown_as_it_is() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    with shown(console) as progress:
        Bar(progress, "trace:/traces/[/busy].csv", 3).note("no [/such] file")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "trace:/traces/[/busy].csv" in text
    assert "no [/such] file" in text


async def test_a_rate_that_the_client_cannot_send_is_not_passed_off_as_the_servers() -> None:
    async with served(say) as server:
        found = await run(server, plan(*[-1.0] * 5))  # due before the run began: one second late at least
    assert any("cannot send at the rate" in caution for caution in found.cautions)
