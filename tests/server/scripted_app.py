"""An app over a scripted engine, in process or behind a real socket, and the smallest question."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import uvicorn
from scripted import ScriptedEngine

from unifiedserve.server.app import create_app
from unifiedserve.server.connections import Connections
from unifiedserve.server.daemon import http_config


class _Server(uvicorn.Server):
    """uvicorn, which ends when it is told to: by itself it would look ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._told.wait()

    def end(self) -> None:
        self.should_exit = True
        self._told.set()


@contextlib.asynccontextmanager
async def connected(engine: ScriptedEngine) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(engine)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def listening(engine: ScriptedEngine, connections: int = 100) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(engine)
    server = _Server(http_config(app, Connections(connections), engine.config))
    async with app.router.lifespan_context(app):
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.end()
        await serving
    listener.close()


def question(text: Any = "hi", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def usage(prompt: int, generated: int) -> dict[str, Any]:
    """What a reply says of tokens of which none was cached."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
