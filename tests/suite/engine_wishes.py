"""What tests that need an engine say about it: why, and with which options.

`@pytest.mark.daemon("why", option=value, …)` is for the `daemon` fixture, `@pytest.mark.second_daemon(option=value, …)`
names what the `second_daemon` fixture has beside that. Marks of a module hold for its tests, whose own go first; a
parameter with the name of an option is that option.
"""

import pytest

from unifiedserve.cli.options import options_of
from unifiedserve.config import EngineConfig

Options = dict[str, object]
_DEFAULTS = {field.name: field.default for field, _ in options_of(EngineConfig)}


def starts_engines(item: pytest.Item) -> bool:
    return "serve" in getattr(item, "fixturenames", ())


def reason(item: pytest.Item) -> str:
    """Return why a test needs an engine; empty if it does not say so."""
    return next((str(mark.args[0]) for mark in item.iter_markers("daemon") if mark.args), "")


def options(item: pytest.Item) -> Options:
    """Return the options that a test's `daemon` is started with."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec else {}
    given = {name: value for name, value in parameters.items() if name in _DEFAULTS}
    return {**_merged(item, "daemon"), **given}


def second_options(item: pytest.Item) -> Options | None:
    """Return the options of its `second_daemon`, if it has one."""
    return {**options(item), **_merged(item, "second_daemon")} if "second_daemon" in _fixtures(item) else None


def configurations(item: pytest.Item) -> list[str]:
    """Return a name for each configuration that a test needs alive at once."""
    wanted = [options(item), second_options(item)]
    return [configuration_name(each) for each in wanted if each is not None]


def configuration_name(options: Options) -> str:
    """Return the options in one line; those with the default value are left out."""
    named = {name: value for name, value in options.items() if value != _DEFAULTS[name]}
    return " ".join(f"{name}={value}" for name, value in sorted(named.items())) or "defaults"


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _merged(item: pytest.Item, mark_name: str) -> Options:
    merged: Options = {}
    for mark in item.iter_markers(mark_name):  # the closest first
        merged = {**mark.kwargs, **merged}
    return merged
