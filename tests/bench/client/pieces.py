"""Small requests, and what a speaker needs beside them."""

from typing import Any

import httpx
import msgspec

from unifiedserve.bench.client.body import Bodies, Wishes
from unifiedserve.bench.client.dialects import DIALECTS
from unifiedserve.bench.client.target import Target
from unifiedserve.bench.requests import Arrival, Request, Text, Turn
from unifiedserve.bench.run.plan import Manner, Plan


class NoMedia:
    def url(self, path: str) -> msgspec.Raw:
        raise AssertionError(f"there are no media, but {path} was asked for")


def bodies(dialect: str = "vllm", **wishes: Any) -> Bodies:
    return Bodies("m", DIALECTS[dialect], NoMedia(), Wishes(**wishes))


def turn(text: str = "hi", max_tokens: int = 2, **fields: Any) -> Turn:
    return Turn(parts=(Text(text),), max_tokens=max_tokens, **fields)


def request(name: str = "r", *turns: Turn) -> Request:
    return Request(id=name, kind="text", turns=turns or (turn(),))


def plan(*dues: float, **fields: Any) -> Plan:
    arrivals = [Arrival(due, request(f"r{number}")) for number, due in enumerate(dues)]
    told: dict[str, Any] = {"name": "n", "workload": "w", "arrivals": "a", "seed": 1}
    return Plan(**told, requests=arrivals, **fields)


def manner(url: str, dialect: str = "vllm", **fields: Any) -> Manner:
    return Manner(url=url, target=Target(model="m", dialect=DIALECTS[dialect]), **fields)


def http(url: str) -> httpx.AsyncClient:
    from unifiedserve.bench.client.connection import connect

    return connect(url, silence=300.0)
