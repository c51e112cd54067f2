"""The unit for systemd: what it says of the server is so, and its figures fit together."""

import shlex
from configparser import ConfigParser

import pytest
from project_files import PACKAGING, TO_STOP, options_of

UNIT = ConfigParser(interpolation=None)
UNIT.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their capitals
UNIT.read_string((PACKAGING / "systemd" / "unifiedserve.service").read_text())
SERVICE = UNIT["Service"]
SERVE = options_of(shlex.split(SERVICE["ExecStart"])[1:])


def test_a_drain_has_time() -> None:
    assert float(SERVICE["TimeoutStopSec"]) >= float(SERVE["--drain-timeout"]) + TO_STOP


def test_keys_are_read_again_on_reload() -> None:
    assert SERVICE["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert "--api-key-file" in SERVE
    assert "DynamicUser" not in SERVICE


def test_code_may_be_compiled_as_it_runs() -> None:
    assert "MemoryDenyWriteExecute" not in SERVICE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KillMode", "mixed"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("PrivateTmp", "yes"),
        ("CapabilityBoundingSet", ""),
        ("RestartPreventExitStatus", "2"),
    ],
)
def test_it_is_held_to(name: str, value: str) -> None:
    assert SERVICE[name] == value
