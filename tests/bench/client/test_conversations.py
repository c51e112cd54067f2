"""Conversations, what their turns carry, and whether their answers are right."""

import math

from chat_server import Exchange, chunk, event, refuse, say, served, usage
from clocks import ManualClock
from pieces import bodies, http, request, turn

from unifiedserve.bench.client.conversation import Judge, Speaker
from unifiedserve.bench.client.endpoint import Endpoint
from unifiedserve.bench.client.judge import by_logprob, by_text, likeliest
from unifiedserve.bench.records import Record
from unifiedserve.bench.requests import Expected, Request

AB = Expected(choices=("cat", "dog"), right=1)


async def hold(asked: Request, script: object = say, judge: Judge | None = None) -> tuple[list[Record], list[Exchange]]:
    ended: list[Record] = []
    clock = ManualClock()
    async with served(script) as server, http(server.url) as client:  # type: ignore[arg-type]
        speaker = Speaker(
            Endpoint(client, clock), bodies(), clock, judge=judge, sent=lambda record: None, ended=ended.append
        )
        await speaker.hold(asked, 10.0)
        return ended, server.seen


async def test_turns_follow_each_other_after_their_pauses() -> None:
    records, seen = await hold(request("r", turn("one"), turn("two", 3, pause=5.0)))
    assert [(record.turn, record.due, record.sent) for record in records] == [(0, 10.0, 10.0), (1, 15.0, 15.0)]
    assert [message["content"] for message in seen[1].json["messages"]] == ["one", "xx", "two"]
    assert [len(record.token_times) for record in records] == [2, 3]


async def test_the_server_is_told_a_name_for_each_turn() -> None:
    _, seen = await hold(request("a/b c", turn(), turn()))
    names = [exchange.headers["x-request-id"] for exchange in seen]
    assert [name.partition("-")[2] for name in names] == ["a-b-c.0", "a-b-c.1"]
    assert len({name.partition("-")[0] for name in names}) == 1


async def test_after_a_failure_nothing_more_is_said() -> None:
    records, seen = await hold(request("r", turn(), turn()), refuse(500, "broken"))
    assert (len(records), len(seen)) == (1, 1)


async def test_an_answer_that_is_too_short_is_a_failure() -> None:
    async def short(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(chunk("x", [1]), usage(1, 1))
        await exchange.end()

    records, _ = await hold(request("r", turn(max_tokens=2)), short)
    assert records[0].error == "asked for 2 tokens, got 1"
    records, _ = await hold(request("r", turn(max_tokens=2, exact=False)), short)
    assert records[0].error is None


async def test_right_by_the_text_of_the_answer() -> None:
    judge = by_text(lambda text, expected: text == "x" * (expected.right or 0))
    records, _ = await hold(request("r", turn(max_tokens=1, expected=AB)), judge=judge)
    assert records[0].right is True
    records, _ = await hold(request("r", turn(max_tokens=1)), judge=judge)
    assert records[0].right is None


async def test_right_by_the_log_probability_of_the_first_token() -> None:
    top = [{"token": "A", "logprob": -1.2}, {"token": " B", "logprob": -1.5}, {"token": "B", "logprob": -1.6}]
    logprobs = {"content": [{"token": "The", "logprob": -0.1, "top_logprobs": top}]}

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        choice = {"index": 0, "delta": {"content": "The"}, "token_ids": [1], "logprobs": logprobs}
        await exchange.send(event({"id": "c", "choices": [choice]}), usage(1, 1))
        await exchange.end()

    records, _ = await hold(request("r", turn(max_tokens=1, expected=AB)), script, by_logprob(lambda choices: "AB"))
    assert records[0].right is True  # " B" and "B" together are likelier than "A"


def test_no_label_among_the_likeliest() -> None:
    assert likeliest({"The": -0.1}, ["A", "B"]) is None
    assert likeliest({"A": -9.0, "B": -math.inf}, ["A", "B"]) == 0
