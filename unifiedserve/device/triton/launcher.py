"""Launch kernels that Triton compiled before, at a fraction of its own cost. The host pays that."""

from typing import Any

import triton
from torch import Tensor
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime import driver
from triton.runtime.jit import JITFunction

#: releases of Triton in which `JITFunction.run` ends with the call that `Launcher` makes; in others it makes none
READ = ("3.6.", "3.7.", "3.8.", "3.9.")
DIRECT = triton.__version__.startswith(READ) and isinstance(getattr(CompiledKernel, "run", None), property)

Tensors = tuple[Tensor | None, ...]
Numbers = tuple[float | None, ...]


class Launcher:
    """Launch one kernel with the same constants and options every time.

    The kernel's parameters are tensors, then numbers, then the constants; the first two may be None. The first launch
    of each `kinds` of arguments on a device is Triton's own, and so is every launch in its interpreter, or if hooks
    want to know of launches. Options that Triton takes from its environment count when a kernel is first launched.
    """

    def __init__(self, kernel: Any, constants: dict[str, int], **options: int) -> None:
        self._kernel, self._constants, self._options = kernel, constants, options
        names = kernel.arg_names
        self._last = tuple(constants[name] for name in names[len(names) - len(constants) :])
        self._compiled: dict[tuple[object, ...], Any] = {}
        self._direct = DIRECT and isinstance(kernel, JITFunction)

    def __call__(self, grid: tuple[int, int], tensors: Tensors, numbers: Numbers = ()) -> None:
        """Launch a grid of programs on the current device's current stream."""
        if not self._compiled:  # then there may be no device to ask for
            self._launch_first(grid, tensors, numbers)
            return
        active = driver.active
        device = active.get_current_device()
        compiled = self._compiled.get((device, *kinds(tensors, numbers)))
        if compiled is None or _is_watched(self._kernel):
            self._launch_first(grid, tensors, numbers)
            return
        compiled.run(
            *grid,
            1,
            active.get_current_stream(device),
            compiled.function,
            compiled.packed_metadata,
            None,  # what hooks would be told, and the hooks before and after
            None,
            None,
            *tensors,
            *numbers,
            *self._last,
        )

    def _launch_first(self, grid: tuple[int, int], tensors: Tensors, numbers: Numbers) -> None:
        """Have Triton launch the kernel, and keep what it compiled."""
        compiled = self._kernel[grid](*tensors, *numbers, **self._constants, **self._options)
        if self._direct and isinstance(compiled, CompiledKernel):
            self._compiled[(driver.active.get_current_device(), *kinds(tensors, numbers))] = compiled


def kinds(tensors: Tensors, numbers: Numbers) -> list[object]:
    """Return the kinds of arguments that Triton compiles a kernel for.

    No two arguments that it tells apart are of one kind.
    """
    found: list[object] = []
    for tensor in tensors:
        if tensor is None:
            found.append(None)
        else:
            found += (tensor.dtype, tensor.data_ptr() & 15 == 0)
    for number in numbers:
        if type(number) is float:
            found.append(float)
        elif type(number) is int and number != 1:
            found += (number & 15 == 0, -1 << 31 <= number < 1 << 31, number < 1 << 63)
        else:
            found += (type(number), number)
    return found


def _is_watched(kernel: Any) -> bool:
    """Tell whether hooks are to be called before or after launches."""
    before, after = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(kernel.pre_run_hooks or getattr(before, "calls", before) or getattr(after, "calls", after))
