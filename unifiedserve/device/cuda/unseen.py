"""Compute a GPU's memory that a worker's largest step does not show. Formulas of contexts and videos give it."""

from typing import Any

from unifiedserve.device.cuda.decode_rows import numbers_of_rows
from unifiedserve.device.llama import MODEL_TYPES
from unifiedserve.device.triton.attention_plan import scratch_of_rows
from unifiedserve.doctor.isolation import ProbeError, call

_NUMBER = 4  # bytes of an int32 or float32
#: NVDEC's decoders that FlashCodec keeps for each unit, and the surfaces of one at most (nvdec/nvdec_backend.cpp)
DECODERS_A_UNIT, SURFACES = 2, 20
#: of a surface: a picture of 1080p in whole macroblocks, 8 bits in 4:2:0; larger pictures take what is left free
SURFACE_BYTES = 1920 * 1088 * 3 // 2


def decode_bytes(text: Any, rows: int, tokens: int, page_size: int) -> int:
    """Return the bytes of recorded decode steps for so many sequences. Each has up to so many tokens.

    `text` is the model's config. Partial results of attention and page tables grow with contexts, and the largest step
    is done over a small cache.
    """
    if text.model_type not in MODEL_TYPES:
        return 0
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    partial = scratch_of_rows(rows, tokens, text.num_attention_heads, head_dim)
    return _NUMBER * (partial + numbers_of_rows(rows, -(-tokens // page_size)))


def decoders_bytes(units: int, threads: int) -> int:
    """Return what NVDEC's decoders take when all are in use; `threads` limits them, 0 does not."""
    most = DECODERS_A_UNIT * units
    return SURFACES * SURFACE_BYTES * (min(threads, most) if threads else most)


def nvdec_units(gpu: int = 0) -> int:
    """Return how many NVDEC units the GPU of a number has; 0 if there is no library for them."""
    try:
        gpus = call("nvdec:decoder_caps")  # in a child, because a driver's library may hang
    except ProbeError:
        return 0
    return max((caps["engines"] for caps in gpus[gpu]), default=0) if gpu < len(gpus) else 0
