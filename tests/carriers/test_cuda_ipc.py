"""Pages between GPUs: over a stand-in for libcuda whose GPUs are files. No GPU has run it.

The stand-in does nothing before somebody waits for it, so pages that are told of before the event has come are wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fake_cuda
import pytest

from ipc_buffers import Bell
from unifiedserve.carriers.choose import open_carrier
from unifiedserve.carriers.setting import Setting
from unifiedserve.errors import ConfigError

PROGRAM = Path(__file__).with_name("gpu_pages.py")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cuda.build(tmp_path_factory.mktemp("fake-cuda"))


@pytest.fixture
def environment(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    fake_cuda.use(libraries, tmp_path, monkeypatch)
    here = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return dict(os.environ) | {"PYTHONPATH": here, "FAKE_CUDA_GPUS": "AB"}


@pytest.mark.parametrize(
    ("place", "given"),
    [
        ("cuda:0", {}),
        ("cuda:1", {}),
        ("cuda:1", {"FAKE_CUDA_NO_PEERS": "1"}),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "1,0"}),
    ],
)
def test_pages_arrive(environment: dict[str, str], place: str, given: dict[str, str]) -> None:
    """From the first GPU, to it or the second one, be they peers or not, however the reader numbers them."""
    environment |= given
    run = subprocess.run([sys.executable, PROGRAM, "read", place], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["read", "stale", "nothing is left"]


def test_a_copy_that_fails_is_told(environment: dict[str, str]) -> None:
    environment["FAKE_CUDA_FAULT"] = "cuMemcpyAsync"
    run = subprocess.run([sys.executable, PROGRAM, "fail", "cuda:1"], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "cuMemcpyAsync: CUDA_ERROR_NOT_SUPPORTED" in run.stdout


def test_pools_of_the_host_are_refused(environment: dict[str, str]) -> None:
    run = subprocess.run([sys.executable, PROGRAM, "host"], env=environment, capture_output=True, text=True)
    assert run.stdout == "the carrier 'cuda_ipc' is for GPUs, and the pages of 'kv' are on 'host'\n", run.stderr


def test_it_opens_without_a_gpu(bell: Bell) -> None:
    """The driver is needed when there is something to copy."""
    try:
        open_carrier("cuda_ipc", Setting("pages"), bell).shut()
    except ConfigError as error:
        pytest.fail(str(error))
