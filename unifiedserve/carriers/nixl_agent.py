"""Wrap what is used of NIXL with types, its failures as one error."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NewType

import numpy as np
from numpy.typing import NDArray

from unifiedserve.errors import ConfigError

_HOST = "DRAM"
_INITIATOR = "NIXL_INIT_AGENT"
Pieces = NewType("Pieces", int)  # areas that were prepared
Areas = NDArray[np.int64]
Places = NDArray[np.int32]


class NixlError(Exception):
    """Signal a call of NIXL that failed, in NIXL's words."""


class Area(NamedTuple):
    """Name bytes of a process's host memory."""

    address: int
    bytes: int
    device: int = 0


class NixlRead:
    """Follow a read that was begun."""

    def __init__(self, agent: Any, handle: Any) -> None:
        self._agent = agent
        self._handle = handle

    def done(self) -> bool:
        """Tell whether all has come; raises NixlError if it will not."""
        with _named():
            state = self._agent.check_xfer_state(self._handle)
        if state not in ("DONE", "PROC"):
            raise NixlError("NIXL: the read failed")
        return bool(state == "DONE")

    def release(self) -> bool:
        """Give it up; return False if it is under way and cannot be stopped yet."""
        try:
            with _named():
                self._handle.release()
        except NixlError:
            return False
        return True


class NixlAgent:
    """Read host memory over UCX, as an agent of NIXL."""

    def __init__(self, name: str) -> None:
        try:
            from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t
        except ImportError:
            raise ConfigError(
                "the carrier 'nixl' is not installed: pip install 'unifiedserve[nixl]', or choose 'tcp'"
            ) from None
        _log_with_others()
        try:
            with _named():
                safe = nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
                self._agent: Any = nixl_agent(name, nixl_agent_config(backends=["UCX"], sync_mode=safe))
        except NixlError as error:
            raise ConfigError(f"the carrier 'nixl' cannot be opened: {error}") from None
        self.name = name
        self._registered: list[Any] = []
        self._others: list[str] = []
        self._prepared: list[Any] = []

    def register(self, area: Area) -> None:
        """Let others read an area, and read into it."""
        with _named():
            self._registered.append(self._agent.register_memory([(*area, "")], _HOST))

    def metadata(self) -> bytes:
        """Return what others need to read what was registered."""
        with _named():
            return bytes(self._agent.get_agent_metadata())

    def meet(self, metadata: bytes) -> str:
        """Return the name of another agent, which is known from now on."""
        with _named():
            name = self._agent.add_remote_agent(metadata)
        self._others.append(name.decode() if isinstance(name, bytes) else str(name))
        return self._others[-1]

    def prepare(self, agent: str, areas: Areas) -> Pieces:
        """Prepare areas of an agent, "" for this one, to be read from or into. Rows are address, bytes and 0.

        Reads name them by their places.
        """
        with _named():
            handle = self._agent.prep_xfer_dlist(agent or _INITIATOR, areas, _HOST)
        if not handle:
            raise NixlError("NIXL: memory cannot be prepared")
        self._prepared.append(handle)
        return Pieces(len(self._prepared) - 1)

    def read(self, there: Pieces, source: Places, here: Pieces, into: Places) -> NixlRead:
        """Begin to read pieces of another agent into as many equal ones of one's own."""
        with _named():
            own, others = self._prepared[here], self._prepared[there]
            handle = self._agent.make_prepped_xfer("READ", own, into, others, source)
            if self._agent.transfer(handle) == "ERR":
                raise NixlError("NIXL: the read cannot be begun")
        return NixlRead(self._agent, handle)

    def end(self) -> None:
        """Take back what was registered, and end its threads."""
        for handle in self._prepared:
            with _ignored():
                self._agent.release_dlist_handle(handle)
        for name in self._others:
            with _ignored():
                self._agent.remove_remote_agent(name)
        for registered in self._registered:
            with _ignored():
                self._agent.deregister_memory(registered)
        self._prepared, self._others, self._registered = [], [], []
        self._agent = None


def unique_agent_name() -> str:
    """Return a name that no other agent has, as NIXL demands."""
    return f"unifiedserve-{os.uname().nodename}-{os.getpid()}-{time.monotonic_ns()}"


def _log_with_others() -> None:
    """Have NIXL's warnings go where all logs go; by itself it writes to stdout."""
    log = logging.getLogger("nixl")
    log.handlers.clear()
    log.propagate = True
    log.setLevel(logging.WARNING)


@contextmanager
def _named() -> Iterator[None]:
    """Raise NixlError in place of NIXL's errors, which have no class in common."""
    try:
        yield
    except NixlError:
        raise
    except Exception as error:
        raise NixlError(f"NIXL: {type(error).__name__} {error}".strip()) from None


@contextmanager
def _ignored() -> Iterator[None]:
    try:
        with _named():
            yield
    except NixlError:
        pass
