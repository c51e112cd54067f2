"""Every kernel compiles for the GPUs that are meant, with the shared memory and registers that these have."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: bytes of shared memory of a block by compute capability (CUDA's programming guide); 8.6 and 12.0 are as 8.9
SHARED_BYTES = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10}
FOLDER = Path(__file__).parent
KERNELS = {"_attend", "_merge", "_store_kv", "_add_rms_norm", "_silu_mul", "_rotate_heads", "_multiply", "_add"}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("no Triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")), "TRITON_DUMP_PTXAS_LOG": "1"}
    sizes = [f"{capability}:{shared}" for capability, shared in SHARED_BYTES.items()]
    command = [sys.executable, str(FOLDER / "compile_kernels.py"), *sizes, str(FOLDER / "compiled.jsonl")]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.xdist_group("compilation")  # one process compiles for all
@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_kernels_compile_and_fit(compiled: list[dict[str, Any]], capability: int) -> None:
    kernels = [kernel for kernel in compiled if kernel["capability"] == capability]
    assert {kernel["kernel"] for kernel in kernels} == KERNELS
    assert all(kernel["cubin_bytes"] for kernel in kernels)
    assert [kernel for kernel in kernels if kernel["shared_bytes"] > SHARED_BYTES[capability]] == []
    assert [kernel for kernel in kernels if kernel["spill_bytes"]] == []
