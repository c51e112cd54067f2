"""Triton's kernels run on a GPU where there is one, else in Triton's interpreter.

Triton must find a variable set for that when it is imported and whenever it runs a kernel, and nothing else may.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import unifiedserve.device.triton
from unifiedserve.doctor import gpu

KERNELS = [path.stem for path in Path(unifiedserve.device.triton.__file__).parent.glob("[!_]*.py")]
INTERPRETED = not gpu.has_device() and "triton" not in sys.modules and importlib.util.find_spec("triton") is not None


def choose_interpreter(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("TRITON_INTERPRET", "1")


def prepare_language_once(patch: pytest.MonkeyPatch) -> None:
    """Spare the interpreter half of its time: it would prepare Triton's language for each function that a kernel calls,
    as it has for the kernel.
    """
    interpreter = importlib.import_module("triton.runtime.interpreter")
    prepare, language = interpreter._patch_lang, interpreter.tl

    def prepare_unless_done(function: Any) -> Any:
        used = [part for part in (language, language.core) if any(part is v for v in function.__globals__.values())]
        done = not any(language.core.is_builtin(part.load) for part in used)
        return interpreter._LangPatchScope() if done else prepare(function)

    patch.setattr(interpreter, "_patch_lang", prepare_unless_done)


def sum_products_in_order(patch: pytest.MonkeyPatch) -> None:
    """Let the interpreter sum as tensor cores do, alike for every row of a tile: BLAS does not."""
    interpreter = importlib.import_module("triton.runtime.interpreter")

    def dot(builder: Any, left: Any, right: Any, total: Any, *_: Any) -> Any:
        sums = total.data.copy()
        for column, row in zip(left.data.T.astype(sums.dtype), right.data.astype(sums.dtype), strict=True):
            sums += column[:, None] * row
        return interpreter.TensorHandle(sums, total.dtype.scalar)

    patch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)


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
            prepare_language_once(patch)
        yield torch.device(request.param)


@pytest.fixture(scope="module")
def in_order(device: torch.device) -> Iterator[None]:
    """Let each row of a product be summed alike, as it is on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if device.type == "cpu":
            sum_products_in_order(patch)
        yield
