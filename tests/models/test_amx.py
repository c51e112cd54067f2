"""Products in AMX's registers equal the same sums in float64; where there are none, tests/fakes has some.

There a handler of SIGILL carries AMX's instructions out, as the compiler encoded them.
"""

import platform
import subprocess
from collections.abc import Callable
from ctypes import CDLL, c_bool, c_float, c_int, c_int64, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import fake_cuda
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from unifiedserve import _core
from unifiedserve.device.cpu.panels import by_panel, pack_halves, to_panels

REPOSITORY = Path(__file__).resolve().parents[2]
KERNELS = REPOSITORY / "unifiedserve" / "csrc"
FAKES = REPOSITORY / "tests" / "fakes" / "amx"
SETS = ("kernels_amx.cpp", "kernels_avx512_bf16.cpp", "kernels_avx512_vnni.cpp")
SOURCES = [
    FAKES / "linear.cpp",
    *(KERNELS / name for name in ("thread_pool.cpp", "sequence_attention.cpp", *SETS)),
]
VECTORS = [f"-mavx512{name}" for name in ("f", "bw", "dq", "vl", "vnni", "bf16")]

ARGUMENTS: list[Any] = [c_int, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_bool]

Linear = Callable[..., Tensor]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> CDLL:
    if platform.machine() != "x86_64" or not {"avx512_bf16", "amx"} & set(_core.instruction_sets()):
        pytest.skip("no AVX-512 BF16, which is used beside AMX")
    path = tmp_path_factory.mktemp("amx") / "liblinear.so"
    options = ["-std=c++20", "-O1", "-ffp-contract=fast", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    folders = [f"-I{folder}" for folder in (REPOSITORY, KERNELS)]
    vectors = ["-mavx2", "-mfma", *VECTORS]
    subprocess.run([fake_cuda.cxx(), *options, *vectors, *folders, "-o", path, *SOURCES], check=True)
    library = CDLL(str(path))
    library.amx_linear.restype = c_bool
    library.amx_linear.argtypes = ARGUMENTS
    library.amx_codes.restype = c_bool
    library.amx_codes.argtypes = [*ARGUMENTS, c_int, c_int64, c_void_p, c_void_p, c_bool]
    library.amx_sequences.restype = c_bool
    library.amx_sequences.argtypes = [
        c_int, c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_float, c_int64, c_void_p
    ]  # fmt: skip
    return library


@pytest.fixture(scope="module")
def linear(library: CDLL) -> Linear:
    return partial(product, library)


def product(
    library: CDLL, x: Tensor, weight: Tensor, bias: Tensor | None = None, y: Tensor | None = None, threads: int = 1
) -> Tensor:
    """Return the product [rows, outputs], added to `y` if there is one."""
    panels, result = to_panels(weight), torch.full((len(x), len(weight)), torch.nan) if y is None else y.clone()
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in (x, panels, bias, result)]
    args = pointers[0], len(x), pointers[1], pointers[2], *weight.shape, pointers[3], y is not None
    assert not library.amx_linear(threads, *args), "registers are left as they were"
    return result


def random_case(rows: int, outputs: int, inputs: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, a weight and a bias."""
    random = torch.Generator().manual_seed(seed)
    shapes = (rows, inputs), (outputs, inputs), (outputs,)
    x, weight, bias = (torch.randn(*shape, generator=random).bfloat16() for shape in shapes)
    return x, weight, bias


@settings(max_examples=40)
@given(
    rows=st.integers(1, 100),
    outputs=st.integers(1, 100),
    pairs=st.integers(1, 200) | st.sampled_from([16, 256, 272, 512]),
    has_bias=st.booleans(),
    accumulate=st.booleans(),
    seed=st.integers(0, 2**32),
)
@example(rows=300, outputs=290, pairs=24, has_bias=True, accumulate=False, seed=0)  # several blocks of rows and outputs
@example(rows=33, outputs=17, pairs=300, has_bias=True, accumulate=True, seed=0)  # several parts of inputs
@example(rows=1, outputs=40, pairs=300, has_bias=True, accumulate=True, seed=0)
def test_products(
    linear: Linear, rows: int, outputs: int, pairs: int, has_bias: bool, accumulate: bool, seed: int
) -> None:
    x, weight, bias = random_case(rows, outputs, 2 * pairs, seed)
    before = torch.randn(rows, outputs) if accumulate else None
    result = linear(x, weight, bias if has_bias else None, before, threads=1)
    expected = x.double() @ weight.double().T
    expected += bias.double() if has_bias else 0
    expected += 0 if before is None else before.double()
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5 * (2 * pairs) ** 0.5)


def test_a_row_does_not_depend_on_the_batch(linear: Linear) -> None:
    x, weight, bias = random_case(280, 50, 616)  # of which 8 pairs fill no register
    together = linear(x, weight, bias)
    for rows in (1, 2, 7, 16, 17, 32, 33, 48, 100):
        assert torch.equal(linear(x[:rows], weight, bias), together[:rows])
        assert torch.equal(linear(x[-rows:].contiguous(), weight, bias), together[-rows:])


def test_threads_share_a_product(linear: Linear) -> None:
    x, weight, bias = random_case(70, 200, 64)
    assert torch.equal(linear(x, weight, bias, threads=3), linear(x, weight, bias))


def zeros_of(kind: str, outputs: int, groups: int, bits: int, random: torch.Generator) -> Tensor:
    """Return zeros of codes, float16: those that leave numbers of a byte, one of them, any numbers, or some of both."""
    if kind.startswith("one"):
        one = 2.0 ** (bits - 1) if kind == "one" else {8: 16.0, 4: 0.5}[bits]
        return torch.full((outputs, groups), one).half()
    whole = (
        torch.full((outputs, groups), 128.0)
        if bits == 8
        else torch.randint(-112, 129, (outputs, groups), generator=random).float()
    )
    anything = torch.rand(outputs, groups, generator=random) * 2**bits
    if kind == "mixed":
        beyond = torch.tensor([-113.0, 127.0 if bits == 8 else 129.0])[torch.arange(groups) % 2].expand(outputs, -1)
        whole = torch.where(torch.arange(groups) < 2, beyond, whole)
        whole[outputs // 2, -1] = 0.5
    return (anything if kind == "any" else whole).half()


@pytest.mark.parametrize("zeros_kind", ["whole", "one", "one that leaves no bytes", "any", "mixed"])
@pytest.mark.parametrize(
    ("bits", "groups", "group"),
    [*((bits, 5, group) for bits in (4, 8) for group in (32, 64, 128, 256)), (8, 1, 448), (8, 1, 4160)],
)
@pytest.mark.parametrize(
    ("rows", "outputs", "accumulate"),
    [(15, 40, False), (16, 40, False), (32, 90, True), (77, 50, False), (300, 16, True)],
)
def test_products_of_codes(
    library: CDLL, rows: int, outputs: int, accumulate: bool, group: int, groups: int, bits: int, zeros_kind: str
) -> None:
    """x of whole numbers whose largest is 127 has codes without an error, so the product is exact, too."""
    random = torch.Generator().manual_seed(rows + bits)
    x = torch.randint(-127, 128, (rows, groups, group), generator=random)
    x[:, :, 0] = 127
    codes = torch.randint(0, 2**bits, (outputs, groups * group), dtype=torch.uint8, generator=random)
    scales = torch.rand(outputs, groups, generator=random).half()
    zeros = zeros_of(zeros_kind, outputs, groups, bits, random)
    bias, y = torch.randn(outputs, generator=random).bfloat16(), torch.randn(rows, outputs, generator=random)
    grouped = codes.view(outputs, groups, group).double()
    weight = ((grouped - zeros[:, :, None].double()) * scales[:, :, None].double()).flatten(1)
    expected = x.flatten(1).double() @ weight.T + bias.double() + (y.double() if accumulate else 0)
    tensors = x.flatten(1).bfloat16(), to_panels(codes if bits == 8 else pack_halves(codes)), bias
    same = zeros_kind.startswith("one")
    pointers, tables = (
        [each.data_ptr() for each in tensors],
        [by_panel(scales), by_panel(zeros[:16, :1] if same else zeros)],
    )

    def product(rows: int) -> Tensor:
        sums = y[:rows].clone()
        args = pointers[0], rows, *pointers[1:], outputs, groups * group, sums.data_ptr(), accumulate
        left = library.amx_codes(2, *args, bits, group, *(table.data_ptr() for table in tables), same)
        assert not left, "registers are left as they were"
        return sums

    together = product(rows)
    largest = float((x.flatten(1).abs().double() @ weight.abs().T).max())
    torch.testing.assert_close(together.double(), expected, rtol=1e-5, atol=1e-6 * largest)
    for few in (1, 7, 14):  # which vectors multiply
        assert torch.equal(product(few), together[:few])


@pytest.mark.parametrize(
    ("length", "sequences", "head_dim"),
    [
        (1, 3, 64),
        (15, 2, 64),
        (17, 1, 80),
        (33, 2, 72),
        (63, 1, 18),
        (65, 2, 64),
        (96, 1, 128),
        (130, 2, 30),
        (545, 1, 64),
    ],
)
def test_attention(library: CDLL, length: int, sequences: int, head_dim: int) -> None:
    """Keys and rows that fill no register, and heads that do not; what an earlier sequence left behind is no matter."""
    random, heads, rows = torch.Generator().manual_seed(length), 2, length * sequences
    qkv = torch.randn(rows, 3, heads, head_dim, generator=random).bfloat16()
    cosine, sine = torch.ones(rows, head_dim // 2), torch.zeros(rows, head_dim // 2)

    def attended(qkv: Tensor, threads: int) -> Tensor:
        out = torch.full((len(qkv), heads, head_dim), torch.nan, dtype=torch.bfloat16)
        pointers = [each.data_ptr() for each in (qkv, cosine, sine, out)]
        args = threads, pointers[0], len(qkv), heads, head_dim, *pointers[1:3], head_dim**-0.5, length, pointers[3]
        assert not library.amx_sequences(*args), "registers are left as they were"
        return out

    q, k, v = (each.view(sequences, length, heads, head_dim).transpose(1, 2).double() for each in qkv.unbind(1))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, heads, head_dim)
    together = attended(qkv, 2)
    torch.testing.assert_close(together.double(), expected, rtol=2e-2, atol=2e-2)
    assert torch.equal(attended(qkv[-length:].contiguous(), 1), together[-length:])
    poisoned = qkv.clone()
    poisoned[:length] = torch.inf
    if sequences > 1:
        assert torch.equal(attended(poisoned, 1)[-length:], together[-length:])
