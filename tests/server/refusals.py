"""Error objects of requests that are refused."""

from typing import Any

import httpx
from scripted import ScriptedEngine


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    return dict(body["error"])


async def check_refused(
    client: httpx.AsyncClient, engine: ScriptedEngine, path: str, body: dict[str, Any], param: str, hint: str
) -> None:
    """400 with the field and the reason, and nothing came to the engine."""
    response = await client.post(path, json=body)
    assert response.status_code == 400
    error = error_of(response)
    assert error["param"] == param
    assert hint in error["message"]
    assert error["type"] == "invalid_request_error"
    assert engine.requests == []
