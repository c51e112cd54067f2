"""The C++ core refuses tensors of another type, shape, stride or device than it computes with, and says which."""

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from unifiedserve import _core
from unifiedserve.device.cpu.matrix import Matrix

POOL = _core.ThreadPool(1)
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 16, 4, 2, 4, 24
SHAPE = _core.DecoderShape(
    hidden=HIDDEN,
    heads=HEADS,
    kv_heads=KV_HEADS,
    head_dim=HEAD_DIM,
    intermediate=INTERMEDIATE,
    epsilon=1e-6,
    scale=0.5,
)


def weight(outputs: int, inputs: int, dtype: torch.dtype = torch.float32) -> _core.Weight:
    return Matrix.of(torch.zeros(outputs, inputs, dtype=dtype)).native(torch.zeros(outputs, dtype=dtype))


def code_weight(**changes: Any) -> _core.Weight:
    """Codes of 8 bits for a matrix [5, 64], with a scale for each 32 inputs."""
    arguments = {
        "panels": torch.zeros(1, 16, 16, 4, dtype=torch.uint8),
        "outputs": 5,
        "inputs": 64,
        "scales": torch.ones(1, 2, 16, dtype=torch.float16),
        "zeros": torch.zeros(1, 2, 16, dtype=torch.float16),
    }
    return _core.Weight(**arguments | changes)


def linear(**changes: Any) -> None:
    arguments = {"x": torch.zeros(3, 8), "weight": weight(5, 8), "y": torch.zeros(3, 5)}
    _core.linear(POOL, **arguments | changes)


def linear_then(**changes: Any) -> None:
    arguments = {"x": torch.zeros(3, 8), "weight": weight(5, 8), "step": "none", "other": None, "y": torch.zeros(3, 5)}
    _core.linear_then(POOL, **arguments | changes)


def layer(**changes: Any) -> _core.DecoderLayer:
    width = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    arguments = {
        "input_norm": torch.ones(HIDDEN),
        "qkv": weight(width, HIDDEN),
        "query_norm": torch.ones(HEAD_DIM),
        "key_norm": None,
        "output": weight(HIDDEN, HEADS * HEAD_DIM),
        "attention_norm": torch.ones(HIDDEN),
        "gate_up": weight(2 * INTERMEDIATE, HIDDEN),
        "down": weight(HIDDEN, INTERMEDIATE),
    }
    return _core.DecoderLayer(**arguments | changes)


def decoder(**changes: Any) -> _core.Decoder:
    return _core.Decoder(POOL, SHAPE, (layer(), layer(**changes)), torch.ones(HIDDEN))


def int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def batch(**changes: Any) -> _core.Batch:
    arguments = {
        "qo_indptr": int32(0, 3),
        "kv_page_indptr": int32(0, 1),
        "kv_page_indices": int32(0),
        "kv_lens": int32(3),
        "slots": torch.arange(3),
        "wanted_indptr": int32(0, 1),
    }
    return _core.Batch(**arguments | changes)


def cache(dtype: torch.dtype = torch.float32) -> _core.KvCache:
    return _core.KvCache(torch.zeros(2, 2, 2, 8, KV_HEADS, HEAD_DIM, dtype=dtype))


def coded_cache(**changes: Any) -> _core.KvCache:
    codes = torch.zeros(2, 2, 2, 8, KV_HEADS, HEAD_DIM, dtype=torch.int8)
    return _core.KvCache(**{"data": codes, "scales": torch.ones(2, 2, 2, KV_HEADS, 8)} | changes)


def store_codes(**changes: Any) -> None:
    new = torch.zeros(3, KV_HEADS, HEAD_DIM)
    arguments = {"layer": 0, "batch": batch(), "cache": coded_cache(), "keys": new, "values": new}
    _core.store_codes(POOL, **arguments | changes)


def step(**changes: Any) -> None:
    arguments = {
        "embeds": torch.zeros(3, HIDDEN),
        "cosine": torch.ones(3, HEAD_DIM),
        "sine": torch.zeros(3, HEAD_DIM),
        "batch": batch(),
        "cache": cache(),
        "hidden": torch.zeros(1, HIDDEN),
    }
    decoder().step(**arguments | changes)


def attend(**changes: Any) -> None:
    q = torch.zeros(3, HEADS, HEAD_DIM)
    arguments = {"layer": 0, "batch": batch(), "cache": cache(), "q": q, "out": torch.empty_like(q), "scale": 1.0}
    _core.attend(POOL, **arguments | changes)


def attend_sequences(**changes: Any) -> None:
    angles = torch.zeros(6, 2)
    arguments = {"qkv": torch.zeros(6, 3, 2, 4), "cosine": angles, "sine": angles, "groups": [(0, 1, 6)]}
    _core.attend_sequences(POOL, **arguments | {"out": torch.zeros(6, 2, 4), "scale": 1.0} | changes)


def likeliest(**changes: Any) -> None:
    arguments = {"logits": torch.zeros(3, 8), "out": torch.zeros(3, dtype=torch.int64)}
    _core.likeliest(POOL, **arguments | changes)


def rms_norm(**changes: Any) -> None:
    arguments = {"x": torch.zeros(3, 8), "weight": torch.ones(8), "epsilon": 1e-6, "out": torch.zeros(3, 8)}
    _core.rms_norm(POOL, **arguments | changes)


@pytest.mark.parametrize(
    "call",
    [
        linear,
        code_weight,
        decoder,
        batch,
        cache,
        coded_cache,
        store_codes,
        step,
        attend,
        attend_sequences,
        likeliest,
        rms_norm,
    ],
)
def test_what_fits_is_taken(call: Callable[[], object]) -> None:
    call()


HALF = torch.bfloat16
EIGHTS = {"scales": torch.ones(1, 8, 16, dtype=torch.float16), "zeros": torch.zeros(1, 8, 16, dtype=torch.float16)}


@pytest.mark.parametrize(
    ("call", "change", "message"),
    [
        (linear, {"x": torch.zeros(3, 8, dtype=torch.float16)}, "x: expected float32 or bfloat16, got float16"),
        (linear, {"x": torch.zeros(3, 8, dtype=HALF)}, "weight.bias: expected bfloat16, got float32"),
        (linear, {"y": torch.zeros(3, 5, dtype=HALF)}, "y: expected float32, got bfloat16"),
        (decoder, {"down": weight(HIDDEN, INTERMEDIATE, HALF)}, r"layers\[1\].down.bias: expected float32"),
        (decoder, {"key_norm": torch.ones(HEAD_DIM, dtype=torch.float64)}, "key_norm: expected float32, got float64"),
        (batch, {"slots": int32(0, 1, 2)}, "slots: expected int64, got int32"),
        (cache, {"dtype": torch.int32}, "data: expected float32 or bfloat16, got int32"),
        (cache, {"dtype": torch.int8}, "data: expected float32 or bfloat16, got int8"),
        (coded_cache, {"data": torch.zeros(2, 2, 2, 8, KV_HEADS, HEAD_DIM)}, "data: expected int8, got float32"),
        (coded_cache, {"scales": torch.ones(2, 2, 2, KV_HEADS, 8, dtype=HALF)}, "scales: expected float32"),
        (store_codes, {"cache": cache()}, "cache: expected int8, got float32"),
        (store_codes, {"keys": torch.zeros(3, KV_HEADS, HEAD_DIM, dtype=torch.int8)}, "keys: expected float32 or"),
        (step, {"embeds": torch.zeros(3, HIDDEN, dtype=HALF)}, "embeds: expected float32, got bfloat16"),
        (step, {"sine": torch.zeros(3, HEAD_DIM, dtype=torch.bool)}, "sine: expected float32, got bool"),
        (step, {"cache": cache(HALF)}, "cache: expected float32, got bfloat16"),
        (attend, {"cache": cache(HALF)}, "cache: expected float32, got bfloat16"),
        (attend_sequences, {"cosine": torch.zeros(6, 2, dtype=HALF)}, "cosine: expected float32, got bfloat16"),
        (rms_norm, {"weight": torch.ones(8, dtype=HALF)}, "weight: expected float32, got bfloat16"),
        (rms_norm, {"x": 4096}, "incompatible function arguments"),
    ],
)
def test_types(call: Callable[..., object], change: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(**change)


@pytest.mark.parametrize(
    ("call", "change", "message"),
    [
        (linear, {"x": torch.zeros(3, 7)}, r"x: expected shape \[rows=3, inputs=8\], got \[3, 7\]"),
        (linear, {"x": torch.zeros(8)}, r"x: expected shape \[rows, inputs=8\], got \[8\]"),
        (linear, {"y": torch.zeros(2, 5)}, r"y: expected shape \[rows=3, outputs=5\], got \[2, 5\]"),
        (decoder, {"down": weight(HIDDEN, 7)}, r"layers\[1\].down: expected shape .*=24\], got \[16, 7\]"),
        (code_weight, {"inputs": 48}, r"panels: expected shape \[panels=1, lanes=12, .*\], got \[1, 16, 16, 4\]"),
        (code_weight, {"zeros": torch.zeros(1, 3, 16, dtype=torch.float16)}, r"zeros: expected shape .*groups=2"),
        (code_weight, {"zeros": None}, "codes need scales and zeros"),
        (
            code_weight,
            EIGHTS,
            "scales: expected groups of 16, 32, 64, 128 or 256 inputs, or .8 bits. one of all, got 8 for 64 inputs",
        ),
        (code_weight, {"panels": torch.zeros(2, 16, 16, 4, dtype=torch.uint8)}, "panels=1"),
        (decoder, {"input_norm": torch.ones(3)}, r"input_norm: expected shape \[hidden=16\], got \[3\]"),
        (batch, {"slots": torch.zeros(3, 1, dtype=torch.int64)}, r"slots: expected shape \[n\], got \[3, 1\]"),
        (batch, {"kv_lens": int32()}, "the index arrays contradict each other"),
        (step, {"embeds": torch.zeros(2, HIDDEN)}, r"embeds: expected shape \[tokens=3, .*\], got \[2, 16\]"),
        (step, {"embeds": torch.zeros(3, 24)}, "embeds: expected a multiple of 16 columns, got 24"),
        (step, {"embeds": torch.zeros(3, 48)}, "no layer after which all columns of the embeddings could be added"),
        (step, {"hidden": torch.zeros(3, HIDDEN)}, r"hidden: expected shape \[wanted=1, hidden=16\]"),
        (attend, {"q": torch.zeros(3, HEADS, 8)}, r"q: expected shape \[tokens=3, heads=4, head_dim=4\]"),
        (attend, {"q": torch.zeros(3, 3, HEAD_DIM), "out": torch.zeros(3, 3, HEAD_DIM)}, "3 query heads for 2"),
        (
            coded_cache,
            {"scales": torch.ones(2, 2, 2, 8, KV_HEADS)},
            r"scales: expected shape .*heads=2, page_size=8",
        ),
        (store_codes, {"values": torch.zeros(3, 1, HEAD_DIM)}, r"values: expected shape \[tokens=3, kv_heads=2,"),
        (store_codes, {"layer": 2}, "no layer 2"),
        (attend_sequences, {"sine": torch.zeros(6, 4)}, r"sine: expected shape \[rows=6, head_dim / 2=2\]"),
        (attend_sequences, {"qkv": torch.zeros(6, 2, 2, 4)}, r"qkv: expected shape \[rows=6, kinds=3,"),
        (rms_norm, {"weight": torch.ones(9)}, r"weight: expected shape \[width=8\], got \[9\]"),
        (rms_norm, {"x": torch.zeros([1] * 9)}, "9 dimensions, expected at most 8"),
        (likeliest, {"out": torch.zeros(2, dtype=torch.int64)}, r"out: expected shape \[rows=3\], got \[2\]"),
        (likeliest, {"logits": torch.zeros(3, 0)}, "logits: expected some of each row, got none"),
    ],
)
def test_shapes(call: Callable[..., object], change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**change)


@pytest.mark.parametrize(
    ("call", "change", "message"),
    [
        (linear, {"x": torch.zeros(8, 3).T}, r"x: expected contiguous memory, got strides \[1, 3\] for shape \[3, 8\]"),
        (linear, {"y": torch.zeros(3, 6)[:, :5]}, r"y: expected contiguous memory, got strides \[6, 1\]"),
        (step, {"cosine": torch.zeros(HEAD_DIM).expand(3, -1)}, "cosine: expected contiguous memory"),
        (batch, {"slots": torch.arange(6)[::2]}, "slots: expected contiguous memory"),
        (coded_cache, {"scales": torch.ones(2, 2, 2, KV_HEADS, 9)[..., :8]}, "scales: expected contiguous memory"),
    ],
)
def test_strides(call: Callable[..., object], change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**change)


def test_strides_of_single_rows_do_not_matter() -> None:
    linear(x=torch.zeros(2, 8)[::2], y=torch.zeros(9, 5)[::9])


class DLTensor(ctypes.Structure):
    """A tensor as DLPack's C interface describes it."""

    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class ExchangeApi(ctypes.Structure):
    """DLPack's functions of a tensor class, of which the core calls `describe`."""

    Describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
    _fields_: ClassVar = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("owning", ctypes.c_void_p * 3),
        ("describe", Describe),
        ("stream", ctypes.c_void_p),
    ]


SIZES = (ctypes.c_int64 * 2)(3, 8)


@ExchangeApi.Describe
def describe(_: object, out: Any) -> int:
    out[0] = DLTensor(0, 2, 1, 2, 2, 32, 1, SIZES, None, 0)
    return 0


CAPSULE_NAME = b"dlpack_exchange_api"
EXCHANGE = ExchangeApi(1, 3, None, (ctypes.c_void_p * 3)(), describe, None)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class OnSecondGpu:
    """What a float32 tensor [3, 8] on the second GPU looks like."""

    __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(EXCHANGE), CAPSULE_NAME, None)


def test_devices() -> None:
    with pytest.raises(ValueError, match="x: expected a tensor on the CPU, got one on cuda:1"):
        linear(x=OnSecondGpu())
    with pytest.raises(RuntimeError, match="Cannot pack tensors on meta"):
        linear(x=torch.zeros(3, 8, device="meta"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": "tanh"}, "no step 'tanh'; there are none, silu, plus and times"),
        ({"step": "plus"}, "step 'plus' takes another tensor"),
        ({"other": torch.zeros(3, 5)}, "step 'none' takes no other tensor"),
        ({"step": "times", "other": torch.zeros(3, 4)}, r"other: expected shape \[rows=3, outputs=5\]"),
        ({"y": torch.zeros(2, 5)}, r"y: expected shape \[rows=3, outputs=5\]"),
    ],
)
def test_steps_behind_a_product(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linear_then(**changes)


def test_bound_weights_stay_alive() -> None:
    """The core holds the tensors that its objects look into."""
    x, matrix = torch.randn(2, 1000), torch.randn(500, 1000)
    bound = Matrix.of(matrix).native()
    junk = [torch.full((500, 1000), torch.nan) for _ in range(4)]
    y = torch.empty(2, 500)
    _core.linear(POOL, x, bound, y)
    torch.testing.assert_close(y, x @ matrix.T, rtol=1e-4, atol=1e-4)
    assert junk
