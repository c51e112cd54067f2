"""Send a request to a node and its answer back. Where the node is lost, another one goes on with the answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import aiohttp
import msgspec
from yarl import URL

from unifiedserve.cluster.router.asked import Asked
from unifiedserve.cluster.router.nodes import Need, Node, Nodes
from unifiedserve.cluster.router.plans import Plans
from unifiedserve.cluster.router.stream import MarkedStream, Marks
from unifiedserve.cluster.router.trip import Trip
from unifiedserve.cluster.routing import Request
from unifiedserve.config import cluster_key
from unifiedserve.errors import SHUTTING_DOWN, ErrorKind, RequestError
from unifiedserve.messages.encoding import KEY_HEADER, NODES_HEADER, write_nodes
from unifiedserve.scheduling import Work
from unifiedserve.server.answers.marks import BEGUN, HEADER

_log = logging.getLogger(__name__)

_MOST_NODES = 4  # that are tried for one request
_UNTIL_A_NODE = 10.0  # seconds that a request waits for a node to come (back)
_UNTIL_AWAKE = 120.0  # and for a pool that sleeps
_REFUSED = (429, 503)  # by a node that is full, or down: another one may take the request
_NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
_EVENTS = "text/event-stream"
_TEXT = Request(Work(prompt_tokens=0))
_BREAKS = (aiohttp.ClientError, TimeoutError, ConnectionError)


class Asking(NamedTuple):
    """Hold a request on its way: where to, its body and headers, and what is known of it."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]
    asked: Asked
    request: Request


class Head(NamedTuple):
    """Tell how an answer begins."""

    status: int
    headers: Mapping[str, str]


class Relay:
    """Carry one request: `start` it, then `carry` its events, and `close` it in any case."""

    def __init__(self, http: aiohttp.ClientSession, nodes: Nodes, plans: Plans, asking: Asking, trip: Trip) -> None:
        self._http = http
        self._nodes = nodes
        self._plans = plans
        self._asking = asking
        self._trip = trip
        self._attempts = 0
        self._refusing: set[str] = set()  # nodes that have no room for it
        self._refusal: tuple[Head, bytes] | None = None  # what the last of them has said
        self._marks = Marks()  # of what the client has
        self._id = ""  # of the answer, as the client has it
        self._node: Node | None = None
        self._response: aiohttp.ClientResponse | None = None
        self._whole: bytes | None = None  # of an answer that is not streamed

    @property
    def is_streamed(self) -> bool:
        """Tell whether the answer comes in events."""
        return self._whole is None

    @property
    def whole(self) -> bytes:
        """Return the body of an answer that does not."""
        return self._whole or b""

    async def start(self) -> Head:
        """Return the head of the answer, from the first node that gives one.

        Raises RequestError UNAVAILABLE if there is none.
        """
        while True:
            if (sent := await self._send()) is None:
                return self._refused()
            node, response = sent
            try:
                self._whole = None if response.content_type == _EVENTS else await node.reply(response.read())
            except _BREAKS as error:
                self._lost(node, error)
                continue
            self._plans.served(self._asking.asked, node.member.name)
            self._trip.answered(node.member.name, response.status)
            self._id = response.headers.get("x-request-id", "")
            return Head(response.status, response.headers)

    async def carry(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write the events of an answer as they come, to its end. Raises RequestError where nobody goes on with it."""
        while not await self._carried(write):
            await self._go_on()

    async def _carried(self, write: Callable[[bytes], Awaitable[None]]) -> bool:
        """Write the events of the node that answers; return whether it has sent all of them."""
        node, response = self._node, self._response
        assert node
        assert response
        node.streams.add(response)
        reader = MarkedStream(self._marks)
        while True:
            try:
                chunk = await response.content.readany()
            except _BREAKS as error:
                self._lost(node, error)
                return False
            if not chunk:
                break
            if events := reader.take(chunk):
                await write(events)
        if SHUTTING_DOWN.encode() in reader.rest:
            self._lost(node, ConnectionResetError("it shuts down"))
            return False
        if reader.rest:
            await write(reader.rest)
        return True

    def close(self) -> None:
        """Break off what is still to come: the node aborts it."""
        if self._node and self._response:
            self._node.streams.discard(self._response)
            self._response.close()

    async def _go_on(self) -> None:
        """Have another node send what the client lacks; one that had no room may have some by now."""
        self._refusing.clear()
        if (sent := await self._send()) is None:
            raise self._unavailable()
        _, response = sent
        if response.content_type != _EVENTS:
            self._trip.failed()
            reason = (await response.read()).decode(errors="replace")
            raise RequestError(f"no other node could go on with the answer: {reason}", ErrorKind.UNAVAILABLE)

    def _lost(self, node: Node, error: BaseException) -> None:
        _log.warning("%s broke off (%s): another node goes on", node.member.name, str(error) or type(error).__name__)
        self.close()
        self._trip.broke_off(node.member.name)
        self._nodes.suspect(node)

    async def _send(self) -> tuple[Node, aiohttp.ClientResponse] | None:
        """Return the node that answers, and the response's beginning.

        The next one follows where a node breaks off, or has no room. Returns None if all that can be asked have refused
        it. Raises RequestError UNAVAILABLE if there is none.
        """
        while True:
            node = await self._next_node()
            if node is None or self._attempts >= _MOST_NODES:
                if self._refusing:
                    return None
                raise self._unavailable()
            self._attempts += 1
            try:
                self._node, self._response = node, await self._post(node)
                if self._response.status not in _REFUSED:
                    return node, self._response
                head = Head(self._response.status, self._response.headers)
                self._refusal = head, await node.reply(self._response.read())
            except _BREAKS as error:
                self._lost(node, error)
                continue
            self._refusing.add(node.member.name)
            self._trip.refused(node.member.name)

    def _refused(self) -> Head:
        """Answer as the last node did that had no room."""
        assert self._refusal
        self._trip.failed()
        head, self._whole = self._refusal
        return head

    def _unavailable(self) -> RequestError:
        self._trip.failed()
        return RequestError(self._nobody(), ErrorKind.UNAVAILABLE, retry_after=1)

    def _nobody(self) -> str:
        """Return why nobody takes it."""
        model = f" for {self._asking.asked.model}" if self._asking.asked.model else ""
        if self._asking.asked.media and self._nodes.choose(self._asking.asked.model, _TEXT, self._refusing):
            return f"no node encodes images and videos{model} now: start some, with --placement v+e"
        return f"no node takes requests{model} now"

    async def _next_node(self) -> Node | None:
        """Return the node to serve it next.

        If none can, and none has refused it, it is one that can within some seconds.
        """
        if (node := self._choose()) or self._refusing:
            return node
        clock = asyncio.get_running_loop().time
        need = Need(self._asking.asked.model, encoder=bool(self._asking.request.work.visual_tokens))
        end = clock() + (_UNTIL_AWAKE if self._nodes.sleeping(need) else _UNTIL_A_NODE)
        with self._nodes.counted_as_waiting(need):
            while node is None and clock() < end and (self._nodes.each() or self._nodes.sleeping(need)):
                await self._nodes.wait(end - clock())
                node = self._choose()
        return node

    def _choose(self) -> Node | None:
        return self._nodes.choose(self._asking.asked.model, self._asking.request, self._refusing)

    async def _post(self, node: Node) -> aiohttp.ClientResponse:
        asking = self._asking
        headers = {**asking.headers, **self._trip.asks(node.member.name)}
        if asking.asked.stream:
            headers |= {HEADER: "1", **({BEGUN: self._id} if self._id else {})}
        if encoders := self._nodes.encode_nodes(node, asking.request):
            headers |= {NODES_HEADER: write_nodes(encoders), KEY_HEADER: cluster_key()}
        url = URL(node.member.url + asking.path, encoded=True)
        asked = self._http.request(asking.method, url, data=self._resuming(), headers=headers, timeout=_NO_LIMIT)
        return await node.reply(asked)

    def _resuming(self) -> bytes:
        """Return the body. For an answer that has begun, it has the tokens that the client has."""
        body = self._asking.body
        if (begun := self._marks.tokens) is None:
            return body
        fields = body.strip()[:-1].rstrip()
        comma = b"" if fields == b"{" else b","  # of two fields of a name the last one counts
        return fields + comma + b'"resume":' + msgspec.json.encode(_joined(_resumed_by(body), begun)) + b"}"


class _Resuming(msgspec.Struct):
    resume: list[list[int]] | None = None


def _resumed_by(body: bytes) -> list[list[int]]:
    """Return the tokens that a client's own `resume` has, in a valid body."""
    return msgspec.json.decode(body, type=_Resuming).resume or [] if b"resume" in body else []


def _joined(given: Sequence[list[int]], begun: Sequence[list[int]]) -> list[list[int]]:
    """Return the tokens of each answer that its reader has by now."""
    nothing = list[int]()
    return [[*first, *rest] for first, rest in zip_longest(given, begun, fillvalue=nothing)]
