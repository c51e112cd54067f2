"""How long Triton takes to compile each variant of each kernel for this GPU, and what these need of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.gpu import machine
from bench.gpu.figures import Figures
from unifiedserve.device.triton.paged_attention import shared_bytes_with
from unifiedserve.doctor.isolation import call

COMPILER = machine.ROOT / "tests/device/compile_kernels.py"


def kernels(figures: Figures) -> None:
    """Compile what the launchers launch, with an empty cache."""
    major, minor = _capability()
    capability, shared = f"{major}{minor}", shared_bytes_with((major, minor))
    environment = os.environ | {"TRITON_CACHE_DIR": str(Path("triton").resolve()), "TRITON_DUMP_PTXAS_LOG": "1"}
    rows = []
    command = [sys.executable, str(COMPILER), f"{capability}:{shared}"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            rows.append(json.loads(line))
            figures.add(capability=capability, variants=rows, total_s=sum(row["seconds"] for row in rows))
    if process.returncode != 0:
        raise RuntimeError(f"compiling ended with code {process.returncode}")


def _capability() -> tuple[int, int]:
    """Return this GPU's as in (9, 0); without a GPU Hopper's, for which the compiler needs none."""
    devices = call("gpu:devices")["devices"]
    if not devices:
        return 9, 0
    major, minor = str(devices[0]["capability"]).split(".")
    return int(major), int(minor)
