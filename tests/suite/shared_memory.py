"""Fails the run when an arena of ours outlives its tests. Arenas of other live processes are not ours."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

try:
    from ipc_buffers import list_arenas
except ImportError:  # the other package is tested alone

    def list_arenas() -> list[Any]:
        return []


_before: set[str] = set()


@pytest.fixture(scope="session", autouse=True)
def no_arena_of_this_process_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if not _interrupted(request.session):
        left = sorted(arena.name for arena in list_arenas() if arena.pid == os.getpid())
        assert not left, f"left in shared memory: {', '.join(left)}"


def pytest_sessionstart() -> None:
    _before.update(_orphans())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look for arenas of dead processes once, where the tests of all of pytest's workers have ended."""
    if hasattr(session.config, "workerinput") or _interrupted(session):
        return
    left = sorted(_orphans() - _before)
    if left:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter:
            reporter.write_line(f"left in shared memory by processes that have ended: {', '.join(left)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _interrupted(session: pytest.Session) -> bool:
    """Ctrl-C: nobody cleaned up, and the report of what was interrupted matters more."""
    return session.exitstatus == pytest.ExitCode.INTERRUPTED


def _orphans() -> set[str]:
    return {arena.name for arena in list_arenas() if not arena.alive}
