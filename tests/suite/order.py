"""The order of the tests, and which of them one worker runs: the dearest first, those that share what is dear together.

Tests that start engines are ordered so that few are started while two are kept alive.
"""

from collections.abc import Iterable

import engine_wishes
import pytest

KEPT_ALIVE = 2  # engines

# Files that lean on the scheduling of the machine run one after another.
ALONE = ("tests/flashcodec/test_fairness.py", "tests/flashcodec/test_serving.py", "tests/bench/")


@pytest.hookimpl(trylast=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Tell xdist what stays together; it reads that before `pytest_collection_modifyitems` of others."""
    if item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if getattr(config.option, "loadgroup", False) and not all("@" in item.nodeid for item in items):
        raise pytest.UsageError("xdist cannot keep groups of tests together with this pytest: take one before 9.2")
    silent = [item.nodeid for item in items if engine_wishes.starts_engines(item) and not engine_wishes.reason(item)]
    if silent:
        raise pytest.UsageError("these tests start an engine without a reason: " + ", ".join(silent))
    groups = _grouped(items)
    items[:] = [item for name in sorted(groups, key=_rank) for item in _ordered(groups[name])]


def group_of(item: pytest.Item) -> str:
    """Return the name of the tests that one worker is to run in one go."""
    if engine_wishes.starts_engines(item):
        options = engine_wishes.options(item)
        return " ".join(["engine", str(options.get("model", "tiny")), str(options.get("placement", "shared"))])
    callspec = getattr(item, "callspec", None)
    if callspec and "loaded" in callspec.params:
        return f"family {callspec.params['loaded']}"
    file = item.nodeid.split("::")[0]
    return "alone" if file.startswith(ALONE) else file


def fewest_starts(wanted: Iterable[tuple[str, ...]], kept: int = KEPT_ALIVE) -> list[tuple[str, ...]]:
    """Return the sets of configurations in an order in which each next one needs the fewest starts.

    Among equals, one that uses what is alive goes before one that may end it.
    """
    left, alive, order = list(dict.fromkeys(wanted)), list[str](), list[tuple[str, ...]]()

    def cost(names: tuple[str, ...]) -> tuple[int, int]:
        missing = len(set(names) - set(alive[-kept:]))
        return missing, missing - len(names)

    while left:
        best = min(left, key=cost)
        left.remove(best)
        order.append(best)
        alive = [name for name in alive if name not in best] + list(best)
    return order


def _grouped(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        groups.setdefault(str(mark.args[0]) if mark else "", []).append(item)
    return groups


def _rank(group: str) -> tuple[int, str]:
    """What takes longest goes first: engines, whole commands, families."""
    kinds = (
        "engine tiny shared",
        "engine tiny monolithic",
        "tests/server/test_cli.py",
        "engine",
        "family",
        "tests/training",
        "tests/flashcodec",
    )
    return next((rank for rank, kind in enumerate(kinds) if group.startswith(kind)), len(kinds)), group


def _ordered(items: list[pytest.Item]) -> list[pytest.Item]:
    if not engine_wishes.starts_engines(items[0]):
        return items
    needs = {item: tuple(engine_wishes.configurations(item)) for item in items}
    places = {names: place for place, names in enumerate(fewest_starts(needs.values()))}
    return sorted(items, key=lambda item: places[needs[item]])
