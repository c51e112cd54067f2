"""A launcher launches what Triton would: the same compiled kernel, with the same arguments."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

triton = pytest.importorskip("triton", reason="no Triton")
launchers = pytest.importorskip("unifiedserve.device.triton.launcher")
tl, driver, hooks = triton.language, triton.runtime.driver, triton.knobs.runtime

if not launchers.DIRECT:
    pytest.skip("this Triton launches by itself alone", allow_module_level=True)

CONSTANTS = {"SPLIT": True, "SIZE": 128}
NEAR = (0, 1, 16, 1 << 31, 1 << 32, 1 << 63)  # where Triton's kinds of numbers begin and end
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.int32, torch.int64])
tensors = st.none() | st.builds(lambda dtype, start: torch.zeros(64, dtype=dtype)[start:], dtypes, st.integers(0, 20))
whole = st.sampled_from(NEAR).flatmap(lambda near: st.integers(near - 17, near + 17))
numbers = whole | whole.map(lambda number: -(number % (1 << 63))) | st.floats() | st.booleans()
arguments = st.tuples(tensors, tensors, numbers, numbers)


def kernel_of(first, second, number, other, SIZE: tl.constexpr, SPLIT: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Stand for a kernel; nobody compiles it."""


class Gpus:
    """Stands for Triton's driver of two GPUs, and keeps what is launched there."""

    device, stream = 0, 7

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []

    def get_current_device(self) -> int:
        return self.device

    def get_current_stream(self, device: int) -> int:
        return 100 * device + self.stream

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def compile(self, source: Any, target: Any, options: dict[str, Any]) -> Any:
        """Return a compiled kernel of no code, which is ready to run."""
        kernel = object.__new__(triton.compiler.CompiledKernel)
        kernel.src, kernel.name, kernel.module, kernel.function = source, source.name, None, len(self.launched)
        kernel.packed_metadata = options["num_warps"], options["num_stages"]
        kernel._run = lambda *args: self.launched.append(args)
        kernel._init_handles = lambda: None
        return kernel


class Kernel(triton.runtime.jit.JITFunction):  # type: ignore[misc]
    """Counts what Triton launches itself."""

    plain = 0

    def run(self, *args: Any, **options: Any) -> Any:
        self.plain += 1
        return super().run(*args, **options)


@pytest.fixture(scope="module", autouse=True)
def specialize() -> Any:
    """Have Triton load what it specialises by, which takes functions for its interpreter only if that is chosen."""
    with pytest.MonkeyPatch.context() as patch:
        if not isinstance(tl.cdiv, triton.runtime.jit.JITFunction):
            patch.setenv("TRITON_INTERPRET", "1")
        specialization_of(1)


def specialization_of(argument: Any) -> Any:
    backend = triton.backends.compiler.BaseBackend
    return triton.runtime.jit.native_specialize_impl(backend, argument, False, True, True)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Return GPUs on which Triton believes to be."""
    gpus = Gpus()
    monkeypatch.setattr(driver, "_active", gpus)
    monkeypatch.setattr(triton.compiler, "compile", gpus.compile)
    return gpus


def launched_twice(gpus: Gpus, *args: Any) -> tuple[Kernel, Any]:
    kernel = Kernel(kernel_of)
    launch = launchers.Launcher(kernel, CONSTANTS, num_warps=2, num_stages=5)
    for _ in range(2):
        launch((3, 4), args[:2], args[2:])
    return kernel, launch


@given(st.lists(arguments, min_size=2, max_size=40))
def test_triton_tells_nothing_apart_that_is_of_one_kind(lists: list[tuple[Any, ...]]) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for args in lists:
        special = repr([specialization_of(argument) for argument in args])
        assert seen.setdefault(tuple(launchers.kinds(args[:2], args[2:])), special) == special


@pytest.mark.parametrize("last", [5, 1, 1 << 40, -16, True, 0.5])
def test_the_second_launch_is_the_first_without_triton(gpus: Gpus, last: float) -> None:
    data = torch.zeros(8)
    kernel, _ = launched_twice(gpus, data, None, 0.25, last)
    first, second = gpus.launched
    assert kernel.plain == 1
    assert second[:6] == first[:6] == (3, 4, 1, 7, 0, (2, 5))
    assert second[6:9] == (None, None, None)  # no hooks
    assert second[9:] == first[9:] == (data, None, 0.25, last, 128, True)


def test_the_stream_is_the_current_one(gpus: Gpus) -> None:
    kernel, launch = launched_twice(gpus, torch.zeros(8), None, 1, 2)
    gpus.stream = 9
    launch((1, 1), (torch.zeros(8), None), (1, 2))
    assert (kernel.plain, [args[3] for args in gpus.launched]) == (1, [7, 7, 9])


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ((torch.zeros(8)[1:], None), (2, 2)),
        ((torch.zeros(8).half(), None), (2, 2)),
        ((torch.zeros(8), torch.zeros(8)), (2, 2)),
        ((None, torch.zeros(8)), (2, 2)),
        ((torch.zeros(8), None), (1, 2)),
        ((torch.zeros(8), None), (2, 16)),
        ((torch.zeros(8), None), (2, 2.0)),
        ((torch.zeros(8), None), (2, 1 << 31)),
    ],
)
def test_another_kind_is_compiled_anew(gpus: Gpus, given: tuple[Any, ...], numbers: tuple[float, ...]) -> None:
    kernel, launch = launched_twice(gpus, torch.zeros(8), None, 2, 2)
    for _ in range(2):
        launch((3, 4), given, numbers)
    assert kernel.plain == 2
    assert [args[4] for args in gpus.launched] == [0, 0, 2, 2]  # the function


def test_each_device_has_its_own(gpus: Gpus) -> None:
    kernel, launch = launched_twice(gpus, torch.zeros(8), None, 2, 2)
    for gpus.device in (1, 0, 1):
        launch((3, 4), (torch.zeros(8), None), (2, 2))
    assert kernel.plain == 2
    assert [args[3:5] for args in gpus.launched] == [(7, 0), (7, 0), (107, 2), (7, 0), (107, 2)]


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_hooks_hear_of_launches(gpus: Gpus, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kernel, launch = launched_twice(gpus, torch.zeros(8), None, 2, 2)
    monkeypatch.setattr(getattr(hooks, name), "calls", [print])
    launch((3, 4), (torch.zeros(8), None), (2, 2))
    assert kernel.plain == 2


def test_a_kernel_with_hooks_is_launched_by_triton(gpus: Gpus) -> None:
    kernel, launch = launched_twice(gpus, torch.zeros(8), None, 2, 2)
    heard: list[Any] = []
    kernel.add_pre_run_hook(lambda *args, **options: heard.append(args))
    launch((3, 4), (torch.zeros(8), None), (2, 2))
    assert (kernel.plain, len(heard)) == (2, 1)


def test_triton_launches_where_it_was_not_read(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "DIRECT", False)
    kernel, _ = launched_twice(gpus, torch.zeros(8), None, 2, 2)
    assert kernel.plain == len(gpus.launched) == 2
