"""Wrong keys are slowed by address; right ones that were right before are not."""

import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from callers import bearer
from scripted import ScriptedEngine
from scripted_app import connected

from unifiedserve.errors import RequestError
from unifiedserve.server.access.guesses import Guesses

ANNE, BEN = "sk-anne-0123456789", "sk-ben-0123456789"


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    (tmp_path / "keys").write_text(f"anne {ANNE}\nben {BEN}\n")
    return str(tmp_path / "keys")


async def test_an_address_with_wrong_keys_waits_and_keys_that_it_has_shown_do_not(key_file: str) -> None:
    async with connected(ScriptedEngine(api_key_file=key_file)) as client:
        assert (await client.get("/v1/models", headers=bearer(ANNE))).status_code == 200
        found = [(await client.get("/v1/models", headers=bearer(f"guess-{n}"))).status_code for n in range(25)]
        assert found == [401] * 20 + [429] * 5
        assert (await client.get("/v1/models", headers=bearer(ANNE))).status_code == 200
        ben = await client.get("/v1/models", headers=bearer(BEN))  # a guess like any other
        assert ben.status_code == 429
        assert 1 <= int(ben.headers["retry-after"]) <= 3
        assert (await client.get("/v1/models")).status_code == 401


def test_addresses_are_counted_apart_and_wait_for_seconds_only() -> None:
    now = 0.0
    guesses = Guesses(lambda: now)
    for _ in range(20):
        guesses.wrong("10.0.0.1")
    with pytest.raises(RequestError, match="wrong keys a minute"):
        guesses.check("10.0.0.1", b"guess")
    guesses.check("10.0.0.2", b"guess")
    now = 3.0
    guesses.check("10.0.0.1", b"guess")


def test_addresses_of_one_network_are_one() -> None:
    guesses = Guesses(lambda: 0.0)
    for number in range(20):
        guesses.wrong(f"2001:db8::{number:x}")
    with pytest.raises(RequestError):
        guesses.check("2001:db8::ffff", b"guess")
    guesses.check("2001:db8:0:1::1", b"guess")


async def test_a_full_disk_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(tempfile.SpooledTemporaryFile[bytes]):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("starlette.formparsers.SpooledTemporaryFile", Full)
    async with connected(ScriptedEngine()) as client:
        files: Any = {"file": ("a", bytes(10))}
        response: httpx.Response = await client.post("/v1/files", files=files, data={"purpose": "vision"})
    assert response.status_code == 507
    assert "No space left on device" in response.json()["error"]["message"]
    assert response.headers["retry-after"] == "60"
