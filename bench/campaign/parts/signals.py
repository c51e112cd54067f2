"""Processes of the server that are stopped or killed: others take their place, and requests go on."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import psutil

from bench.campaign.asking import CHAT, Request, asks, chat, send
from bench.campaign.cases import Kind, Part, Seen, Target, ViolationError
from bench.campaign.parts.bystanders import among_bystanders
from bench.campaign.parts.ordinary import image
from bench.serve_cpu.memory import family

_SECONDS = 45.0  # in which the server must be whole again
_LOOK_SECONDS = 0.1
_READING = "unifiedserve.reading.nursery"
_GRAMMARS = "grammar_check"
Find = Callable[[Target], Sequence[psutil.Process]]


def _running(target: Target, program: str) -> list[psutil.Process]:
    """Return the server's processes that run a Python module, those of the server itself first."""
    return [each for each in family(target.pid) if program in _command(each)]


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):  # it has ended
        return " ".join(process.cmdline())
    return ""


def _nursery(target: Target) -> list[psutil.Process]:
    return [each for each in _running(target, _READING) if each.ppid() == target.pid]


def _readers(target: Target) -> list[psutil.Process]:
    return [each for each in _running(target, _READING) if each.ppid() != target.pid]


def _named(name: str) -> Find:
    return lambda target: [each for each in family(target.pid) if each.name() == name]


def _grammar(random: Random) -> Request:
    """Return a question whose answer follows an expression that was not tried out before."""
    return asks(CHAT, chat(guided_regex=f"a{{1,{random.randrange(1, 10**6)}}}b?"), 200)


def _signalled(
    find: Find, number: signal.Signals, make: Callable[[Random], Request]
) -> Callable[[Target, Random], Awaitable[Seen]]:
    """Return what sends a signal to processes that a request needs, and asks again."""

    async def act(target: Target, random: Random) -> Seen:
        await send(target, make(random))
        if not (found := find(target)):
            raise ViolationError("there is no such process")
        for process in found:
            process.send_signal(number)
        return await send(target, make(random))

    return act


def _replaced(name: str, number: signal.Signals) -> Callable[[Target, Random], Awaitable[Seen]]:
    """Return what sends a signal to a process that the server must replace, with its workers."""

    async def act(target: Target, random: Random) -> Seen:
        found = _named(name)(target)
        for process in found:
            process.send_signal(number)
        async with asyncio.timeout(_SECONDS):
            while any(process.is_running() for process in found) or not await _healthy(target):
                await asyncio.sleep(_LOOK_SECONDS)
        return await send(target, image(random, deadline=_SECONDS))

    return act


async def _healthy(target: Target) -> bool:
    return (await target.http.get("/health")).status_code == 200


def _both(target: Target) -> list[psutil.Process]:
    return [*_nursery(target), *_readers(target)]


PART = Part(
    "signals",
    [
        Kind("readers of media are stopped", 1, _signalled(_readers, signal.SIGSTOP, image)),
        Kind("readers and what starts them are stopped", 1, _signalled(_both, signal.SIGSTOP, image)),
        Kind("readers and what starts them are killed", 1, _signalled(_both, signal.SIGKILL, image)),
        Kind(
            "what tries grammars out is stopped",
            1,
            _signalled(lambda target: _running(target, _GRAMMARS), signal.SIGSTOP, _grammar),
        ),
        Kind("the vision worker is stopped", 1, _replaced("us:vision", signal.SIGSTOP)),
        Kind("the vision worker is killed", 1, _replaced("us:vision", signal.SIGKILL)),
        Kind("what starts workers is killed", 1, _replaced("us:zygote", signal.SIGKILL)),
        Kind("decode is killed among bystanders", 1, among_bystanders(_replaced("us:decode", signal.SIGKILL))),
    ],
    at_once=1,
)
