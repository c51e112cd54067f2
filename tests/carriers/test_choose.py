"""Which carrier is opened, and what is said of one that cannot be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sides import SETTING

from ipc_buffers import Bell
from unifiedserve.carriers import rdma
from unifiedserve.carriers.choose import open_carrier, resolve
from unifiedserve.carriers.setting import Site, this_machine
from unifiedserve.errors import ConfigError

HERE, ELSEWHERE = this_machine(), "another machine"


@pytest.mark.parametrize(
    ("sites", "kind"),
    [
        ([(HERE, "host"), (HERE, "host")], "shared"),
        ([(HERE, "host"), (ELSEWHERE, "host")], "tcp"),
        ([(HERE, "cuda:0"), (HERE, "cuda:1")], "cuda_ipc"),
        ([(HERE, "host", True), (HERE, "host", True)], "shared"),
        ([(HERE, "host", True), (ELSEWHERE, "host", True)], "nixl"),
        ([(HERE, "host", True), (ELSEWHERE, "host", False)], "tcp"),
        ([], "shared"),
    ],
)
def test_auto(sites: list[tuple[str, str, bool] | tuple[str, str]], kind: str) -> None:
    assert resolve("auto", [Site(*site) for site in sites]) == kind


@pytest.mark.parametrize("sites", [[(HERE, "host"), (HERE, "cuda:0")], [(HERE, "cuda:0"), (ELSEWHERE, "cuda:0")]])
def test_memories_that_nothing_leads_between(sites: list[tuple[str, str]]) -> None:
    with pytest.raises(ConfigError, match="no carrier leads between"):
        resolve("auto", [Site(*site) for site in sites])


@pytest.mark.parametrize(
    ("adapters", "nixl", "expected"), [([], True, False), (["mlx5_0"], False, False), (["mlx5_0"], True, True)]
)
def test_only_hardware_makes_nixl_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapters: list[str], nixl: bool, expected: bool
) -> None:
    """Neither an adapter without NIXL nor NIXL without an adapter is taken; a system without any has no folder."""
    monkeypatch.setattr(rdma, "find_spec", lambda name: object() if nixl and name == "nixl" else None)
    monkeypatch.setattr(rdma, "_ADAPTERS", tmp_path / "infiniband")
    assert not rdma.reads_by_hardware()
    (tmp_path / "infiniband").mkdir()
    for adapter in adapters:
        (tmp_path / "infiniband" / adapter).mkdir()
    assert rdma.reads_by_hardware() == expected


def test_what_is_named_is_taken() -> None:
    assert resolve("tcp", [Site(HERE, "host")]) == "tcp"


def test_a_kind_that_there_is_not(bell: Bell) -> None:
    with pytest.raises(
        ConfigError, match="there is no carrier 'pigeon'; choose one of auto, shared, tcp, nixl, cuda_ipc"
    ):
        open_carrier("pigeon", SETTING, bell)


def test_one_that_is_not_installed() -> None:
    """In a process that has no NIXL, whether it is installed here or not."""
    program = (
        "import sys; sys.modules['nixl'] = None\n"
        "from unifiedserve.carriers.choose import open_carrier\n"
        "from unifiedserve.carriers.setting import Setting\n"
        "from unifiedserve.errors import ConfigError\n"
        "try: open_carrier('nixl', Setting('pages'), None)\n"
        "except ConfigError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "the carrier 'nixl' is not installed: pip install 'unifiedserve[nixl]', or choose 'tcp'\n"


def test_threads_that_are_too_few(bell: Bell) -> None:
    with pytest.raises(ConfigError, match="at least 1 thread, not 0"):
        open_carrier("shared", replace(SETTING, threads=0), bell)
