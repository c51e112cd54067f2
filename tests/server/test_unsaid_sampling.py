"""Every endpoint gives requests the server's defaults for what they do not say of sampling."""

from typing import Any

import httpx
import pytest
from scripted import ScriptedEngine
from scripted_app import question

from unifiedserve.messages.sampling_params import SamplingParams

DEFAULTS = SamplingParams(temperature=0.25, top_p=0.5, top_k=7, min_p=0.125, repetition_penalty=1.5)
ENDPOINTS = [
    ("/v1/chat/completions", question()),
    ("/v1/completions", {"prompt": "Once"}),
    ("/v1/responses", {"input": "Hi"}),
    ("/v1/messages", {**question(), "max_tokens": 9, "model": "scripted"}),
]


@pytest.fixture
def engine() -> ScriptedEngine:
    engine = ScriptedEngine()
    engine.sampling_defaults = DEFAULTS
    return engine


def _told(sampling: SamplingParams) -> tuple[float, ...]:
    return sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, sampling.repetition_penalty


@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
@pytest.mark.parametrize("said", [{}, {"temperature": None, "top_p": None}])
async def test_what_is_not_said(
    client: httpx.AsyncClient, engine: ScriptedEngine, path: str, body: dict[str, Any], said: dict[str, Any]
) -> None:
    response = await client.post(path, json=body | said)
    assert response.status_code == 200, response.text
    assert _told(engine.requests[-1].sampling) == (0.25, 0.5, 7, 0.125, 1.5)
    if path == "/v1/responses":
        assert (response.json()["temperature"], response.json()["top_p"]) == (0.25, 0.5)


@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
async def test_what_is_said_goes_first(
    client: httpx.AsyncClient, engine: ScriptedEngine, path: str, body: dict[str, Any]
) -> None:
    response = await client.post(path, json=body | {"temperature": 0, "top_p": 1})
    assert response.status_code == 200, response.text
    assert _told(engine.requests[-1].sampling) == (0, 1, 7, 0.125, 1.5)
