"""A daemon that drains at SIGTERM, and reads its keys again at SIGHUP."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import wait_until_closed

from unifiedserve.cli.daemon import Daemon, daemon

ANNE, BEN = "sk-anne-0123456789", "sk-ben-0123456789"
SMALL = ("--kv-cache-mib", "128")  # all that `endless` asks for, even in float32


def endless(**given: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "hi"}
    return {"messages": [message], "max_tokens": 30_000, "ignore_eos": True, "stream": True, **given}


def test_what_is_not_done_in_time_ends_with_an_error() -> None:
    with daemon("", *SMALL, "--drain-timeout", "0.1") as (url, process):
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=endless(), timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            *_, last = [line for line in lines if line]
        assert "the server is shutting down" in last
        assert process.wait() == 0


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(f"anne {ANNE}\n")
    return path


@pytest.fixture(scope="module")
def served(keys: Path) -> Iterator[Daemon]:
    with daemon("", *SMALL, "--drain-timeout", "600", "--api-key-file", str(keys)) as served:
        yield served


@pytest.fixture
def guarded(served: Daemon, keys: Path) -> Iterator[Daemon]:
    """A daemon that lets Anne in, and nobody else, before and after the test."""
    yield served
    keys.write_text(f"anne {ANNE}\n")
    served.process.send_signal(signal.SIGHUP)
    wait_for(served.url, BEN, 401)


def status(url: str, key: str) -> int:
    return httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code


def wait_for(url: str, key: str, wanted: int) -> None:
    """Returns when a key has another status: a signal is seen to in its own time."""
    while status(url, key) != wanted:
        pass


def test_keys_are_read_again(guarded: Daemon, keys: Path) -> None:
    url, process = guarded
    assert (status(url, ANNE), status(url, BEN)) == (200, 401)
    keys.write_text(f"ben {BEN}\n")
    process.send_signal(signal.SIGHUP)
    wait_for(url, BEN, 200)
    assert status(url, ANNE) == 401


def test_keys_stay_if_the_file_is_wrong(guarded: Daemon, keys: Path) -> None:
    url, process = guarded
    keys.write_text("short\n")
    process.send_signal(signal.SIGHUP)
    keys.write_text(f"anne {ANNE}\nben {BEN}\n")
    assert status(url, ANNE) == 200
    process.send_signal(signal.SIGHUP)
    wait_for(url, BEN, 200)
    assert status(url, ANNE) == 200


def test_running_requests_end_before_the_daemon_does(served: Daemon) -> None:
    """The last one, because the daemon ends."""
    url, process = served
    asked, key = endless(max_tokens=2000), {"Authorization": f"Bearer {ANNE}"}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=asked, headers=key, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        wait_until_closed(url)
        *_, reason, last = [line for line in lines if line]
    assert '"finish_reason":"length"' in reason
    assert last == "data: [DONE]"
    assert process.wait() == 0
