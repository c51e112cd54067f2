"""A scripted engine, and ways to talk to an app over it."""

from collections.abc import AsyncIterator

import httpx
import pytest
from scripted import ScriptedEngine
from scripted_app import connected, listening


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
async def client(engine: ScriptedEngine) -> AsyncIterator[httpx.AsyncClient]:
    """Talks to the app in process."""
    async with connected(engine) as client:
        yield client


@pytest.fixture
async def url(engine: ScriptedEngine) -> AsyncIterator[str]:
    """The app behind uvicorn on a free port."""
    async with listening(engine) as url:
        yield url
