"""`unifiedserve profile`, with stand-ins for the servers: what was measured is kept."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from unifiedserve.cli import profile as command
from unifiedserve.cli.profile import Wishes, run
from unifiedserve.config import EngineConfig
from unifiedserve.profiles import HardwareProfile, read_profile

BY_HAND = """
format = 1
model = "m"
hardware = "h"
date = 2026-11-28
[device]
kind = "cpu"
cores = 2
memory_gib = 8
[model_sizes]
weights_gib = {encoder = 1.0, language = 2.0}
[costs]
decode_pass = 0.01
"""


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HardwareProfile:
    """Nothing is started: this profile is what was measured."""
    (tmp_path / "made.toml").write_text(BY_HAND)
    made = read_profile(tmp_path / "made.toml")
    nothing = SimpleNamespace(of=lambda *_: None)
    for name, stand_in in (
        ("measured", lambda *_: made),
        ("Media", nothing),
        ("Subject", nothing),
        ("share_now", lambda: 0.0),
        ("OtherLoad", lambda: SimpleNamespace(share=lambda: 0.0)),
    ):
        monkeypatch.setattr(command, name, stand_in)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def test_it_is_kept_though_nobody_reads_the_output(
    measured: HardwareProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit):
            run(EngineConfig(), Wishes(out=tmp_path / "out.toml"), Console())
    assert read_profile(tmp_path / "out.toml") == measured
    assert len(list((tmp_path / "cache").rglob("*.toml"))) == 1
