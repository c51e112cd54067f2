"""Triton's kernels under compute-sanitizer, on ragged batches: accesses beyond memory, and races in shared memory."""

import os
import re
import subprocess
import sys

from bench.gpu.figures import Figures
from unifiedserve.doctor.libraries import find_program

SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


def check(figures: Figures, tool: str) -> None:
    """Run the launches under one of the sanitizer's tools."""
    command = [str(find_program("compute-sanitizer")), "--tool", tool, "--print-limit", "20", "--error-exitcode", "9"]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # so that each tensor has bounds of its own
    launches = [sys.executable, "-P", "-m", "bench.gpu.items.ragged_launches"]
    done = subprocess.run([*command, *launches], env=environment, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    found = [int(next(filter(None, match.groups()), "0")) for match in SUMMARY.finditer(done.stdout)]
    figures.add(tool=tool, errors=sum(found), code=done.returncode)
    if not found:
        raise RuntimeError(f"{tool} gave no summary, and ended with code {done.returncode}")
    if sum(found) or done.returncode:
        raise RuntimeError(f"{tool} found {sum(found)} errors, and ended with code {done.returncode}")
