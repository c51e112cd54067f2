"""Every kernel compiles for the GPUs that are meant, with the shared memory and registers that these have."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CAPABILITIES = (80, 90, 100)
#: of a block, on GPUs of compute capability 8.6, 8.9 and 12.0, which have the least
SHARED_BYTES = 99 << 10
KERNELS = {"_attend", "_merge", "_store_kv", "_add_rms_norm", "_silu_mul", "_rotate_heads"}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("no Triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")), "TRITON_DUMP_PTXAS_LOG": "1"}
    script = Path(__file__).with_name("compile_kernels.py")
    command = [sys.executable, str(script), *map(str, CAPABILITIES)]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_kernels_compile_and_fit(compiled: list[dict[str, Any]], capability: int) -> None:
    kernels = [kernel for kernel in compiled if kernel["capability"] == capability]
    assert {kernel["kernel"] for kernel in kernels} == KERNELS
    assert all(kernel["cubin_bytes"] for kernel in kernels)
    assert [kernel for kernel in kernels if kernel["shared_bytes"] > SHARED_BYTES] == []
    assert [kernel for kernel in kernels if kernel["spill_bytes"]] == []
