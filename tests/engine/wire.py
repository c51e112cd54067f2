"""A connection to a server that can be cut."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Wire:
    """Hands bytes to and fro between its own port and the server's."""

    def __init__(self, listener: socket.socket, server_port: int) -> None:
        self._listener = listener
        self._server_port = server_port
        self._lock = threading.Lock()  # what is accepted while the wire is cut must not stay
        self._open: list[socket.socket] = []
        self._whole = True
        self.port: int = listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections; new ones end at once."""
        with self._lock:
            self._whole = False
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def mend(self) -> None:
        self._whole = True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                with self._lock:
                    if not self._whole:
                        client.close()
                        server.close()
                        continue
                    self._open += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=_pump, args=ends, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def wire_to(server_port: int) -> Iterator[Wire]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire = Wire(listener, server_port)
        yield wire
        wire.cut()
        listener.shutdown(socket.SHUT_RDWR)
