"""Counts the engines that the tests start, in all workers of pytest, and says so at the end."""

from collections import Counter

import pytest
from engine_wishes import Options, configuration_name

starts: Counter[str] = Counter()
_KEY = "engine_starts"


def count(options: Options) -> None:
    """Note the start of an engine with these options, or of two that are compared."""
    starts[configuration_name(options)] += 2 if options.get("compare") else 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_KEY] = dict(starts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    starts.update(getattr(node, "workeroutput", {}).get(_KEY, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if starts:
        terminalreporter.section(f"engine starts: {starts.total()}")
        for name, number in sorted(starts.items()):
            terminalreporter.write_line(f"{number:3} {name}")
