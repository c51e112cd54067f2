"""What carriers are compared with: a bare memcpy, bare sockets, sendfile, and NIXL and Mooncake as they are."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_REQUEST = struct.Struct("<IQ")  # from a file or from memory, bytes
_FROM_MEMORY, _FROM_FILE = 0, 1
Copy = Callable[[int], None]  # of so many bytes, from the first on


class BareServer:
    """Sends the first bytes of a memory to whoever asks, with nothing around them."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data.data
        self._file = os.memfd_create("bare")
        os.write(self._file, self._data)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while request := connection.recv(_REQUEST.size, socket.MSG_WAITALL):
            source, size = _REQUEST.unpack(request)
            if source == _FROM_MEMORY:
                connection.sendall(self._data[:size])
                continue
            offset = 0
            while offset < size:
                offset += os.sendfile(connection.fileno(), self._file, offset, size - offset)


def memcpy(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> Copy:
    """Return a copy in one call, of memory without gaps."""

    def copy(size: int) -> None:
        target[:size] = source[:size]

    return copy


def bare_socket(port: int, target: NDArray[np.uint8], from_file: bool) -> Copy:
    """Return a copy over a blocking connection, in which the server knows what comes."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    view = target.data

    def copy(size: int) -> None:
        connection.sendall(_REQUEST.pack(_FROM_FILE if from_file else _FROM_MEMORY, size))
        left = view[:size]
        while left:
            left = left[connection.recv_into(left) :]

    return copy


class BareNixl:
    """An agent of NIXL, and reads of areas that it was told of before."""

    def __init__(self, name: str) -> None:
        from nixl._api import nixl_agent, nixl_agent_config

        self._agent: Any = nixl_agent(name, nixl_agent_config(backends=["UCX"]))

    def offer(self, data: NDArray[np.uint8]) -> tuple[bytes, int]:
        """Register memory; return what others need to read it."""
        self._agent.register_memory([(data.ctypes.data, data.nbytes, 0, "")], "DRAM")
        return self._agent.get_agent_metadata(), data.ctypes.data

    def reader(self, metadata: bytes, address: int, target: NDArray[np.uint8], page_bytes: int) -> Copy:
        """Return a copy page by page that looks for its end all the time, and compares nothing."""
        self._agent.register_memory([(target.ctypes.data, target.nbytes, 0, "")], "DRAM")
        agent = self._agent.add_remote_agent(metadata)

        def areas(first: int, size: int) -> Any:
            pages = [(first + at, page_bytes, 0) for at in range(0, size, page_bytes)]
            return self._agent.get_xfer_descs(pages, "DRAM")

        def copy(size: int) -> None:
            local, remote = areas(target.ctypes.data, size), areas(address, size)
            handle = self._agent.initialize_xfer("READ", local, remote, agent)
            state = self._agent.transfer(handle)
            while state == "PROC":
                state = self._agent.check_xfer_state(handle)
            handle.release()
            if state != "DONE":
                raise RuntimeError("NIXL cannot read")

        return copy


class BareMooncake:
    """Mooncake's transfer engine over TCP, and reads that wait for their end."""

    def __init__(self) -> None:
        from mooncake.engine import TransferEngine

        self._engine: Any = TransferEngine()
        if self._engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("Mooncake cannot be opened")

    def offer(self, data: NDArray[np.uint8]) -> tuple[str, int]:
        """Register memory; return what others need to read it."""
        self._engine.register_memory(data.ctypes.data, data.nbytes)
        return f"127.0.0.1:{self._engine.get_rpc_port()}", data.ctypes.data

    def reader(self, server: str, address: int, target: NDArray[np.uint8], page_bytes: int) -> Copy:
        """Return a copy page by page that compares nothing."""
        self._engine.register_memory(target.ctypes.data, target.nbytes)

        def copy(size: int) -> None:
            offsets = range(0, size, page_bytes)
            into = [target.ctypes.data + offset for offset in offsets]
            pages = [address + offset for offset in offsets]
            if self._engine.batch_transfer_sync_read(server, into, pages, [page_bytes] * len(into)) != 0:
                raise RuntimeError("Mooncake cannot read")

        return copy
