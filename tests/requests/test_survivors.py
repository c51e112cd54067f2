"""Who is told something is waited for until it has answered, or died."""

import asyncio
from functools import partial

from unifiedserve.engine.survivors import Survivors
from unifiedserve.messages.wire import Count, Heard, Message
from unifiedserve.placement import Stage


async def test_who_answers_and_who_dies_is_waited_for_no_longer() -> None:
    survivors, sent, ended = Survivors(), dict[str, Message](), list[tuple[str, bool]]()
    telling = asyncio.create_task(
        survivors.tell(
            ["a", "b", "c"],
            sent.__setitem__,
            partial(Count, stage=Stage.DECODE),
            lambda name, answer: ended.append((name, answer is not None)),
        )
    )
    while len(sent) < 3:
        await asyncio.sleep(0)
    number = sent["a"].number  # type: ignore[union-attr]
    survivors.heard(Heard(number + 1, "a"))  # an answer to something else
    survivors.heard(Heard(number, "b"))
    survivors.heard(Heard(number, "b"))
    survivors.died("c")
    assert not telling.done()
    survivors.heard(Heard(number, "a"))
    await telling
    assert ended == [("b", True), ("c", False), ("a", True)]


async def test_nobody_is_waited_for_when_all_have_died() -> None:
    survivors, sent = Survivors(), dict[str, Message]()
    telling = asyncio.create_task(survivors.tell(["a", "b"], sent.__setitem__, partial(Count, stage=Stage.DECODE)))
    while len(sent) < 2:
        await asyncio.sleep(0)
    survivors.all_died()
    await telling
    await survivors.tell([], sent.__setitem__, partial(Count, stage=Stage.DECODE))
