"""Triton's kernels run on a GPU where there is one, else in Triton's interpreter.

Triton must find a variable set for that when it is imported and whenever it runs a kernel, and nothing else may.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import unifiedserve.device.triton
from unifiedserve.doctor import gpu

KERNELS = [path.stem for path in Path(unifiedserve.device.triton.__file__).parent.glob("[!_]*.py")]
INTERPRETED = not gpu.has_device() and "triton" not in sys.modules and importlib.util.find_spec("triton") is not None


def choose_interpreter(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("TRITON_INTERPRET", "1")


if INTERPRETED:
    with pytest.MonkeyPatch.context() as patch:
        choose_interpreter(patch)
        for name in KERNELS:
            importlib.import_module(f"unifiedserve.device.triton.{name}")


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Return where kernels run; the processor stands for Triton's interpreter."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "cpu":
            if not INTERPRETED:
                pytest.skip("Triton was imported for a GPU, not for its interpreter")
            choose_interpreter(patch)
        yield torch.device(request.param)
