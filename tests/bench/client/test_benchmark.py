"""Benchmarks as they are asked for, with stand-ins for workloads, arrivals and metrics."""

import asyncio
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_server import Exchange, refuse, say, served
from pieces import request
from rich.console import Console

from unifiedserve.bench.benchmark import Parts, find_goodput, run_once
from unifiedserve.bench.goodput.outcome import describe
from unifiedserve.bench.goodput.search import Found, Goal, Probe
from unifiedserve.bench.options import GoodputOptions, RunOptions
from unifiedserve.bench.records import Record
from unifiedserve.bench.requests import Arrival, Request
from unifiedserve.cli.options import from_options
from unifiedserve.errors import ConfigError


def quiet() -> Console:
    return Console(file=io.StringIO())


class Stage:
    """Requests named by their seeds, at once; a rate is attained up to a limit."""

    def __init__(self, limit: float = 0.0, alone: float = 1.0) -> None:
        self.rate = 0.0
        self.limit = limit
        self.alone = alone
        self.drawn: list[tuple[int, int]] = []

    def parts(self) -> Parts:
        return Parts(self.requests, self.schedule, lambda options: lambda *_: None, self.attainment)

    def requests(self, options: RunOptions, seed: int, count: int) -> Sequence[Request]:
        self.drawn.append((seed, count))
        return [request(f"{seed}-{number}") for number in range(count)]

    def schedule(self, arrivals: str, requests: Sequence[Request], seed: int) -> tuple[list[Arrival], int]:
        kind, _, number = arrivals.partition(":")
        self.rate = 0.0 if kind == "closed" else float(number)
        return [Arrival(0.0, each) for each in requests], 1 if kind == "closed" else 0

    def attainment(self, records: Sequence[Record]) -> float:
        if self.rate == 0.0:
            return self.alone
        return 1.0 if self.rate <= self.limit else 0.0


async def test_the_warm_up_is_drawn_after_what_counts() -> None:
    stage = Stage()
    async with served(say) as server:
        found = await run_once(RunOptions(url=server.url, requests=3, warmup=2, seed=5), stage.parts(), quiet())
        names = [exchange.headers["x-request-id"].partition("-")[2] for exchange in server.seen]
    assert found is not None
    assert (found.name, found.model, found.arrivals, found.seed) == ("vllm", "m", "poisson:1", 5)
    assert names[:2] == ["5-3.0", "5-4.0"]
    assert sorted(record.request for record in found.records) == ["5-0", "5-1", "5-2"]


async def test_requests_are_written_and_not_sent(tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    async with served(say) as server:
        for file in files:
            options = RunOptions(url=server.url, requests=2, dump_requests=str(file))
            assert await run_once(options, Stage().parts(), quiet()) is None
        assert server.seen == []
        gone = RunOptions(url=server.url, dump_requests=str(tmp_path / "no" / "folder"))
        with pytest.raises(ConfigError, match="cannot be written"):
            await run_once(gone, Stage().parts(), quiet())
    assert files[0].read_bytes() == files[1].read_bytes()
    first, _ = files[0].read_text().splitlines()
    assert json.loads(first)["body"]["messages"] == [{"role": "user", "content": "hi"}]


async def test_goodput_keeps_every_run() -> None:
    stage = Stage(limit=3.0)
    async with served(say) as server:
        options = GoodputOptions(url=server.url, requests=2, warmup=0, precision=0.2)
        found, runs = await find_goodput(options, stage.parts(), quiet())
    assert found.rate is not None
    assert found.rate <= 3.0 < (found.too_high or 0) <= 1.2 * found.rate
    assert [run.arrivals for run in runs] == ["closed:1", *(f"poisson:{probe.rate:g}" for probe in found.probes)]
    assert len({seed for seed, _ in stage.drawn}) == len(runs)


async def test_targets_that_cannot_be_held_alone_are_not_searched_for() -> None:
    async with served(say) as server:
        options = GoodputOptions(url=server.url, requests=2)
        found, runs = await find_goodput(options, Stage(limit=9.0, alone=0.5).parts(), quiet())
    assert (found.rate, found.probes, len(runs)) == (None, [], 1)
    assert describe(found, [0.5, 4.0]) == (
        "no goodput: requests that are alone miss the targets; targets 4.00 times as long would do"
    )


async def test_a_search_ends_with_the_server() -> None:
    async with served(refuse(503, "full")) as server:
        options = GoodputOptions(url=server.url, requests=8, warmup=0)
        found, runs = await find_goodput(options, Stage().parts(), quiet())
    assert found.interrupted
    assert [run.interrupted for run in runs] == ["none of the first 8 requests was answered: status 503: full"]


async def test_a_search_keeps_its_runs_though_the_next_one_cannot_begin() -> None:
    async def refuse_the_warm_up_of_the_third(exchange: Exchange) -> None:
        await (say(exchange) if len(server.seen) <= 6 else refuse(503, "full")(exchange))

    console = quiet()
    async with served(refuse_the_warm_up_of_the_third) as server:
        options = GoodputOptions(url=server.url, requests=2, warmup=1)
        found, runs = await find_goodput(options, Stage(limit=9.0).parts(), console)
    assert (found.interrupted, found.rate, found.too_high) == (True, 1.0, None)
    assert [run.arrivals for run in runs] == ["closed:1", "poisson:1"]
    assert "poisson:2: the warm-up failed" in console.file.getvalue()  # type: ignore[attr-defined]


async def test_a_search_keeps_its_runs_though_it_is_stopped_between_two() -> None:
    third = asyncio.Event()

    async def hang_in_the_warm_up_of_the_third(exchange: Exchange) -> None:
        if len(server.seen) <= 6:
            await say(exchange)
        else:
            third.set()
            await asyncio.Event().wait()

    async with served(hang_in_the_warm_up_of_the_third) as server:
        options = GoodputOptions(url=server.url, requests=2, warmup=1)
        searching = asyncio.create_task(find_goodput(options, Stage(limit=9.0).parts(), quiet()))
        await third.wait()
        searching.cancel()
        found, runs = await searching
    assert (found.interrupted, found.rate, len(runs)) == (True, 1.0, 2)


async def test_a_rate_to_search_for_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match=r"'poisson:2' has no RATE"):
        await find_goodput(GoodputOptions(arrivals="poisson:2"), Stage().parts(), quiet())


PROBES = [Probe(rate=1.0, seed=1, attainment=1.0)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rate": 2.0, "too_high": 2.1, "probes": PROBES}, "goodput 2/s, less than 2.1/s"),
        ({"rate": 64.0, "too_high": None, "probes": PROBES}, "or more: no rate that was tried is too high"),
        ({"rate": None, "too_high": 0.5, "probes": PROBES}, "not even 0.5/s"),
        ({"rate": 2.0, "too_high": 4.0, "probes": PROBES, "interrupted": True}, "interrupted; so far: goodput 2/s"),
        ({"rate": None, "too_high": None, "probes": [], "interrupted": True}, "interrupted; so far: nothing"),
    ],
    ids=["found", "beyond", "none", "partial", "nothing"],
)
def test_outcomes_in_words(fields: dict[str, Any], words: str) -> None:
    assert words in describe(Found(goal=Goal(), **fields), [])


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("requests", 0, "--requests: expected `int` >= 1"),
        ("slo_ttft", 0.0, "--slo-ttft"),
        ("media", "post", "--media"),
        ("goal", 1.5, "--goal"),
    ],
)
def test_options_out_of_range(option: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        from_options(GoodputOptions, {option: value})


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_an_extra_body_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--extra-body is no JSON object"):
        _ = RunOptions(extra_body=text).wishes
