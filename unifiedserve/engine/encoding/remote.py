"""Prefill prompts whose media other nodes encode, and read these when they are there."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

import anyio

from unifiedserve.engine.encoding.asking import Asking, NodeError
from unifiedserve.engine.encoding.shares import Share, share_out
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.encoding import EncodedUnit
from unifiedserve.messages.load import EncodeNode

_log = logging.getLogger(__name__)
_MORE_ROUNDS = 2  # in which all nodes are asked again
_PAUSE = 1.0  # seconds before each


class RemoteEncoding:
    """Follow what other nodes encode of one attempt, until all of it was read here.

    Belongs to the engine's event loop.
    """

    def __init__(
        self,
        asking: Asking,
        active: ActiveRequest,
        deliver: Callable[[EncodedUnit], None],
        fail: Callable[[RequestError], None],
    ) -> None:
        """Tell of each unit that can be read; `fail` hears why some of them cannot be had."""
        self._asking = asking
        self._active = active
        self._deliver = deliver
        self._fail = fail
        self._unread: dict[int, str] = {}  # units that can be read, and the URL of their holder
        self._read = asyncio.Event()
        self._choosing = asyncio.Lock()  # shares that have failed together wait for one round, not for one each
        self._scope: anyio.CancelScope | None = None  # the task's own `cancel` would break off httpx's closing, too
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Tell whether some of it is not read yet."""
        return self._task is not None and not self._task.done()

    def begin(self, units: Sequence[int]) -> None:
        """Have these units encoded. There is room for all of them."""
        self._task = asyncio.create_task(self._run(units))

    def read(self, unit: int) -> None:
        """Note that a unit was read: with the last one of a node's, this gives the pages back."""
        self._unread.pop(unit, None)
        self._read.set()

    def lost(self, reason: str) -> None:
        """Note why something could not be read: its holder is not asked again."""
        _log.warning("visual tokens could not be read: %s", reason)
        self._active.lost_nodes.update(dict.fromkeys(self._unread.values(), reason))

    def close(self) -> None:
        """Give up all that is not read."""
        self._closed = True
        if self._scope:
            self._scope.cancel()

    async def _run(self, units: Sequence[int]) -> None:
        with anyio.CancelScope() as self._scope:
            if not self._closed:
                await self._have_all_encoded(units)

    async def _have_all_encoded(self, units: Sequence[int]) -> None:
        try:
            async with anyio.create_task_group() as group:
                for share in share_out(self._active.sources, units, await self._nodes()):
                    group.start_soon(self._have_encoded, share)
        except* RequestError as errors:
            self._fail(_first(errors))
        except* Exception:
            _log.exception("could not have media encoded")
            self._fail(RequestError("internal error while media were encoded by another node", ErrorKind.INTERNAL))

    async def _have_encoded(self, share: Share) -> None:
        """Have a node encode its share; where that fails, others do what is left."""
        left, url = set(share.units), share.node.url
        while left:
            try:
                await self._hold(url, left)
            except NodeError as error:
                _log.warning("%s", error)
                self._active.lost_nodes[url] = str(error)
                url = min(await self._nodes(), key=lambda node: node.pending).url

    async def _hold(self, url: str, left: set[int]) -> None:
        """Ask for what is left, and return when all of it was read."""
        async with contextlib.aclosing(self._asking.units(url, self._active, sorted(left))) as units:
            async for encoded in units:
                if encoded.unit not in left:
                    continue
                left.discard(encoded.unit)
                self._unread[encoded.unit] = url
                self._deliver(encoded)
                if not left:
                    break
            while url in self._unread.values():
                self._read.clear()
                await self._read.wait()

    async def _nodes(self) -> list[EncodeNode]:
        """Return the nodes to ask: all others before one that failed, which may work again by then.

        Raises RequestError, with the reasons, where nobody has done it for some rounds.
        """
        active = self._active
        named, lost = active.planned.request.encode_nodes, active.lost_nodes
        async with self._choosing:
            if nodes := [node for node in named if node.url not in lost]:
                return nodes
            if active.encode_rounds < _MORE_ROUNDS:
                active.encode_rounds += 1
                await asyncio.sleep(_PAUSE)
                lost.clear()
                return named
        raise RequestError(
            f"no node encodes the request's images and videos now ({'; '.join(lost.values())}): try again, or start "
            "more encode nodes",
            ErrorKind.UNAVAILABLE,
            retry_after=1,
        )


def _first(errors: BaseExceptionGroup[RequestError]) -> RequestError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
