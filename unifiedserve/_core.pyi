from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class ThreadPool:
    """Threads for the calls below; idle ones sleep. Raises ValueError unless `threads` is positive."""

    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...
    def use(self, threads: int) -> None:
        """So many of the threads take tasks from now on, at least 1 and at most all; the others sleep."""

class KvCache:
    """Contiguous pages [pages, layers, 2, page_size, kv_heads, head_dim] at an address, K before V."""

    def __init__(self, data: int, pages: int, layers: int, page_size: int, kv_heads: int, head_dim: int) -> None: ...

class Batch:
    """The index arrays of a RaggedBatch, kept as long as this lives."""

    def __init__(
        self,
        qo_indptr: NDArray[np.int32],
        kv_page_indptr: NDArray[np.int32],
        kv_page_indices: NDArray[np.int32],
        kv_lens: NDArray[np.int32],
        slots: NDArray[np.int64],
        wanted_indptr: NDArray[np.int32],
    ) -> None: ...

class Weight:
    """Addresses of a matrix [outputs, inputs] and of its bias [outputs] (0: none)."""

    def __init__(self, matrix: int, bias: int, outputs: int, inputs: int) -> None: ...

class DecoderLayer:
    """Addresses of a layer's weights; 0 for norms of query and key heads that it does not have."""

    def __init__(
        self,
        *,
        input_norm: int,
        qkv: Weight,
        query_norm: int,
        key_norm: int,
        output: Weight,
        attention_norm: int,
        gate_up: Weight,
        down: Weight,
    ) -> None: ...

class DecoderShape:
    def __init__(
        self,
        *,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        intermediate: int,
        epsilon: float,
        scale: float,
    ) -> None: ...

class _Decoder:
    """A decoder's layers over a ragged batch of T tokens, W of them wanted. Tensors are addresses of contiguous memory.

    embeds [T, hidden] and hidden [W, hidden] are of the weights' type, cosine and sine float32 [T, head_dim].
    ValueError: the batch contradicts itself, or does not fit the cache.
    """

    def __init__(self, pool: ThreadPool, shape: DecoderShape, layers: list[DecoderLayer], final_norm: int) -> None: ...
    def step(self, embeds: int, cosine: int, sine: int, batch: Batch, cache: KvCache, hidden: int) -> None:
        """All layers and the final norm; writes all tokens' keys and values to the cache."""

    def plan(self, batch: Batch, cache: KvCache) -> None:
        """Before the parts below are used for a batch."""

    def norm(self, rows: int, residual: int, delta: int, weight: int, out: int) -> None:
        """residual (float32) += delta, unless 0; out = its norm. All [rows, hidden]."""

    def attend(self, layer: int, qkv: int, cosine: int, sine: int, batch: Batch, cache: KvCache, out: int) -> None:
        """From queries, keys and values before rotation [T, (heads + 2 kv_heads) head_dim] to [T, heads head_dim].

        Layers come in their order; the last one's result is [W, heads head_dim].
        """

    def gate(self, rows: int, gate_up: int, out: int) -> None:
        """[rows, 2 intermediate] to silu(gate) * up [rows, intermediate]."""

class DecoderFloat32(_Decoder): ...
class DecoderBFloat16(_Decoder): ...

def linear_float32(pool: ThreadPool, x: int, rows: int, weight: Weight, y: int) -> None:
    """y float32 [rows, outputs] = x [rows, inputs] times the transposed weight, plus its bias."""

def linear_bfloat16(pool: ThreadPool, x: int, rows: int, weight: Weight, y: int) -> None: ...
def attend_float32(
    pool: ThreadPool,
    heads: int,
    scale: float,
    layer: int,
    batch: Batch,
    cache: KvCache,
    q: int,
    out: int,
    window: int | None = None,
) -> None:
    """Causal attention of a ragged batch over one layer's pages; q and out are [T, heads, head_dim].

    A token sees the last `window` keys up to its own, by default all. ValueError: the window is not positive, the batch
    contradicts itself, or does not fit the cache.
    """

def attend_bfloat16(
    pool: ThreadPool,
    heads: int,
    scale: float,
    layer: int,
    batch: Batch,
    cache: KvCache,
    q: int,
    out: int,
    window: int | None = None,
) -> None: ...
def attend_sequences_float32(
    pool: ThreadPool,
    qkv: int,
    rows: int,
    heads: int,
    head_dim: int,
    cosine: int,
    sine: int,
    scale: float,
    groups: Sequence[tuple[int, int, int]],
    out: int,
) -> None:
    """Attention of all rows of a sequence to all, from queries, keys and values [rows, 3, heads, head_dim] before
    rotation to out [rows, heads, head_dim].

    cosine and sine are float32 [rows, head_dim / 2]: an element of a head's first half turns with that of the second
    half. `groups` are (first row, number of sequences, rows of each). ValueError: an odd head_dim, or groups outside
    the rows.
    """

def attend_sequences_bfloat16(
    pool: ThreadPool,
    qkv: int,
    rows: int,
    heads: int,
    head_dim: int,
    cosine: int,
    sine: int,
    scale: float,
    groups: Sequence[tuple[int, int, int]],
    out: int,
) -> None: ...
def rms_norm_float32(pool: ThreadPool, x: int, rows: int, width: int, weight: int, epsilon: float, out: int) -> None:
    """out = each row of x [rows, width] by its root mean square, times weight [width]; rounded once."""

def rms_norm_bfloat16(
    pool: ThreadPool, x: int, rows: int, width: int, weight: int, epsilon: float, out: int
) -> None: ...
def instruction_sets() -> list[str]:
    """Those that this machine can run, the fastest first; the last is "plain"."""

def instruction_set() -> str:
    """The one in use: the fastest, unless another was selected."""

def select_instruction_set(name: str) -> None:
    """For this process; raises ValueError if the machine cannot run it."""
