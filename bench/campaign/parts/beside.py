"""Ordinary requests beside an attack, which must be answered soon."""

import asyncio
from collections.abc import Sequence

from bench.campaign.asking import Request, send
from bench.campaign.cases import Seen, Target, ViolationError

MOST_SECONDS = 60.0  # that clients wait for an attack's answers before they leave
_BESIDE_SECONDS = 20.0  # in which an ordinary request beside an attack must be answered


async def beside(target: Target, requests: Sequence[Request], *ordinary: Request) -> Seen:
    """Send requests at once and, meanwhile, ordinary ones, which must be answered soon; then leave."""
    attacks = [asyncio.create_task(send(target, request)) for request in requests]
    try:
        for request in ordinary:
            await soon(target, request)
        done, _ = await asyncio.wait(attacks, timeout=MOST_SECONDS)
        seen = [task.result() for task in done]
    finally:
        for task in attacks:
            task.cancel()
        await asyncio.gather(*attacks, return_exceptions=True)
    statuses = sorted(each.status for each in seen)
    return Seen(", ".join(statuses) or "left", f"{len(attacks) - len(seen)} left")


async def soon(target: Target, request: Request) -> None:
    """Send an ordinary request, again while the server is busy; it must be answered soon."""
    try:
        async with asyncio.timeout(_BESIDE_SECONDS):
            while (await send(target, request)).status == "429":
                await asyncio.sleep(1)
    except TimeoutError:
        raise ViolationError(f"an ordinary request had no answer for {_BESIDE_SECONDS:.0f} s") from None
