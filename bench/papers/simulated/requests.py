"""Requests with the papers' statistics, and when they come."""

import random
from collections.abc import Callable

from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling.simulation import Arrival

Make = Callable[[random.Random, Ticket], Arrival]


def poisson(rate: float, seconds: float, make: Make, seed: int = 0) -> list[Arrival]:
    """Return the requests of a Poisson process of so many a second."""
    choose, found, now = random.Random(seed), list[Arrival](), 0.0
    while (now := now + choose.expovariate(rate)) < seconds:
        found.append(make(choose, Ticket(len(found), now)))
    return found


def some(rate: float, count: int, make: Make, seed: int = 0) -> list[Arrival]:
    """Return so many requests of a Poisson process."""
    choose, found, now = random.Random(seed), list[Arrival](), 0.0
    for uid in range(count):
        now += choose.expovariate(rate)
        found.append(make(choose, Ticket(uid, now)))
    return found


def asked(ticket: Ticket, text: int, units: list[int], generate: int, media: int = 1) -> Arrival:
    """Return a request with images in the middle of its text, of so many visual tokens each."""
    if not units:
        return Arrival(ticket, [text], [], generate)
    gaps = [text // 2, *[0] * (len(units) - 1), text - text // 2]
    return Arrival(ticket, gaps, units, generate, media=media)


def length(choose: random.Random, mean: float, shape: float = 4.0) -> int:
    """Return a length of at least one token, gamma distributed."""
    return max(1, round(choose.gammavariate(shape, mean / shape)))
