"""Draw a request over its nodes: what the router did for it, and the timelines of nodes, by one clock.

A trace is in the Trace Event Format, as those of nodes are.
"""

import asyncio
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp
import msgspec

from unifiedserve.cluster.router.nodes import Node, Nodes
from unifiedserve.errors import NO_JSON

_KEPT = 2000  # latest requests
_PROCESSES = 100  # of a node in a trace, at most
_PATIENCE = aiohttp.ClientTimeout(total=5.0)
_ID = re.compile(r"^[a-z]+[-_]")  # what an endpoint puts before the id that a router gives


class Step(NamedTuple):
    """Record a node that was asked, between these times (seconds since 1970); `error` if it has failed."""

    node: str
    start: float
    end: float
    error: str


class NodeTrace(msgspec.Struct):
    """Hold what a node tells of its timeline: events, and since when (seconds since 1970) their times count."""

    class Other(msgspec.Struct):
        """Hold the moment."""

        origin: float

    traceEvents: list[dict[str, Any]]  # noqa: N815
    otherData: Other  # noqa: N815


class RouterTimeline:
    """Keep the latest requests. Belongs to the router's event loop."""

    def __init__(self, http: aiohttp.ClientSession, nodes: Nodes) -> None:
        self._http = http
        self._nodes = nodes
        self._kept: deque[tuple[str, Sequence[Step]]] = deque(maxlen=_KEPT)

    def add(self, id: str, steps: Sequence[Step]) -> None:
        """Keep what was done for a request, in place of the oldest."""
        self._kept.append((id, steps))

    async def of(self, request_id: str, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the trace of a request over all nodes. Its callers' headers let them tell."""
        own = [step for id, steps in self._kept for step in steps if id in (request_id, _ID.sub("", request_id))]
        nodes = [node for node in self._nodes.each() if node.report]
        told = await asyncio.gather(*(self._ask(node, request_id, headers) for node in nodes))
        parts = {node.member.name: trace for node, trace in zip(nodes, told, strict=True) if trace}
        return merged(own, parts)

    async def _ask(self, node: Node, request_id: str, headers: Mapping[str, str]) -> NodeTrace | None:
        """Return what a node has of a request; None if it does not tell."""
        url, query = f"{node.member.url}/debug/trace", {"request_id": request_id}
        try:
            async with self._http.get(url, params=query, headers=headers, timeout=_PATIENCE) as response:
                return msgspec.json.decode(await response.read(), type=NodeTrace) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, *NO_JSON):
            return None


def merged(own: Sequence[Step], parts: Mapping[str, NodeTrace]) -> dict[str, Any]:
    """Return one trace: the router's process, and behind it those of nodes which have worked for the request."""
    events = [_event(step) for step in own]
    if events:
        events.append(_name(0, "router"))
    for number, (node, trace) in enumerate(parts.items(), 1):
        events += _moved(trace, number * _PROCESSES, node)
    begins = [event["ts"] for event in events if event["ph"] == "X"]
    origin = min(begins, default=0.0)
    shown = [{**event, "ts": round(event["ts"] - origin, 1)} if event["ph"] == "X" else event for event in events]
    return {"traceEvents": shown, "displayTimeUnit": "ms", "otherData": {"origin": origin / 1e6}}


def _event(step: Step) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": f"ask {step.node}",
        "cat": "route",
        "pid": 0,
        "tid": 1,
        "ts": step.start * 1e6,
        "dur": round((step.end - step.start) * 1e6, 1),
        "args": {"error": step.error} if step.error else {},
    }


def _moved(trace: NodeTrace, first: int, node: str) -> Iterable[dict[str, Any]]:
    """Yield a node's events as processes from `first` on, in microseconds since 1970. Those without work are out."""
    busy = {event["pid"] for event in trace.traceEvents if event["ph"] == "X"}
    for event in trace.traceEvents:
        if event["pid"] not in busy:
            continue
        if event["ph"] == "X":
            yield {**event, "pid": first + event["pid"], "ts": trace.otherData.origin * 1e6 + event["ts"]}
        else:
            yield _name(first + event["pid"], f"{node}: {event['args']['name']}")


def _name(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
