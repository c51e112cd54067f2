"""A server that is measured where the environment has API keys, or a proxy."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from unifiedserve.cli import measured_servers
from unifiedserve.cli.measured_servers import Measurement
from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError


class _Refuse(BaseHTTPRequestHandler):
    shown: list[str | None]

    def do_POST(self) -> None:
        self.shown.append(self.headers["Authorization"])
        self.send_error(418)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_it_is_asked_with_the_key_and_by_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = type("Handler", (_Refuse,), {"shown": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)

    @contextmanager
    def started(*_: Any, **__: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}")

    monkeypatch.setattr(measured_servers, "daemon", started)
    monkeypatch.setenv("UNIFIEDSERVE_API_KEYS", "anne sk-secret-0123456789")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    nothing: Any = SimpleNamespace(folder=".")
    thread.start()
    try:
        with pytest.raises(ConfigError, match="418"):
            Measurement(EngineConfig(), nothing, nothing, nothing).asked(nothing, "shared")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert handler.shown == ["Bearer sk-secret-0123456789"]  # type: ignore[attr-defined]
