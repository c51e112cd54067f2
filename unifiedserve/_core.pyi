"""The kernels and the fused decoder, csrc/.

Tensors are contiguous and on the CPU: TypeError for another element type, ValueError for another shape, other strides
or another device.
"""

from __future__ import annotations

import collections.abc
import typing

import ipc_buffers._core
import torch

__all__: list[str] = [
    "Batch",
    "Decoder",
    "DecoderLayer",
    "DecoderShape",
    "KvCache",
    "ThreadPool",
    "Weight",
    "attend",
    "attend_sequences",
    "file_rules_version",
    "has_call_filters",
    "instruction_set",
    "instruction_sets",
    "likeliest",
    "linear",
    "linear_then",
    "restrict_calls",
    "restrict_files",
    "rms_norm",
    "select_instruction_set",
    "store_codes",
]

class ThreadPool:
    """Threads for the calls below; idle ones sleep. Raises ValueError unless `threads` is positive."""
    def __init__(self, threads: int) -> None: ...
    def use(self, threads: int) -> None:
        """Let this many of the threads take tasks from now on, at least 1 and at most all; the others sleep."""
    @property
    def threads(self) -> int: ...

class KvCache:
    """Pages of keys and values [pages, layers, 2, page_size, kv_heads, head_dim], K before V.

    Of int8 they are codes, and scales are float32 [pages, layers, 2, kv_heads, page_size]. Pages may lie at a distance.
    """
    def __init__(self, data: torch.Tensor, scales: torch.Tensor | None = None) -> None: ...

class Batch:
    """The index arrays of a RaggedBatch: int32, `slots` int64. Raises ValueError if they contradict each other."""
    def __init__(
        self,
        qo_indptr: torch.Tensor,
        kv_page_indptr: torch.Tensor,
        kv_page_indices: torch.Tensor,
        kv_lens: torch.Tensor,
        slots: torch.Tensor,
        wanted_indptr: torch.Tensor,
    ) -> None: ...

class Weight:
    """A matrix [outputs, inputs] and perhaps its bias [outputs].

    panels are [ceil(outputs / 16), inputs / values, 16, values], each of 16 outputs with `values` of their inputs side by
    side: 1 for float32, 2 for bfloat16, which may meet float32, too. Of uint8 they are codes: 4 inputs of 8 bits, or 8
    inputs of 4 bits, in the low halves of 4 bytes and then in the high ones. A weight is then (code - zero) * scale; scales
    and zeros are float16 [ceil(outputs / 16), inputs / group, 16], of groups of 16, 32, 64, 128 or 256 inputs. Of 8 bits
    all inputs may be one group, if they are a multiple of 64 up to 65,536. Zeros that are the same for all are [1, 1, 16].
    Raises ValueError for other shapes.
    """
    def __init__(
        self,
        panels: torch.Tensor,
        outputs: int,
        inputs: int,
        bias: torch.Tensor | None = None,
        scales: torch.Tensor | None = None,
        zeros: torch.Tensor | None = None,
    ) -> None: ...

class DecoderLayer:
    """A layer's weights; norms of query and key heads are None if it has none."""
    def __init__(
        self,
        *,
        input_norm: torch.Tensor,
        qkv: Weight,
        query_norm: torch.Tensor | None,
        key_norm: torch.Tensor | None,
        output: Weight,
        attention_norm: torch.Tensor,
        gate_up: Weight,
        down: Weight,
    ) -> None: ...

class DecoderShape:
    """The sizes of a decoder, and the constants of norms and attention."""
    def __init__(
        self, *, hidden: int, heads: int, kv_heads: int, head_dim: int, intermediate: int, epsilon: float, scale: float
    ) -> None: ...

class Decoder:
    """The layers of a llama-like decoder over a ragged batch of T tokens, W of them wanted.

    Activations and cache have one element type, float32 or bfloat16, and weights, too, but those of bfloat16 or codes go with
    float32, and the cache may have codes; cosine and sine are
    float32 [T, head_dim]. With `all_reduce` it is one of several ranks that take the same steps: the shape is that of its
    own heads and inner columns, and what all ranks add up to goes on.
    Raises ValueError if a batch does not fit the cache, and CollectiveError if a rank does not come. One call at a time.
    """
    def __init__(
        self,
        pool: ThreadPool,
        shape: DecoderShape,
        layers: tuple[DecoderLayer, ...],
        final_norm: torch.Tensor,
        all_reduce: ipc_buffers._core.AllReduce | None = None,
    ) -> None: ...
    def step(
        self,
        embeds: torch.Tensor,
        cosine: torch.Tensor,
        sine: torch.Tensor,
        batch: Batch,
        cache: KvCache,
        hidden: torch.Tensor,
    ) -> None:
        """Run all layers and the final norm, from embeds [T, width] to hidden [W, hidden].

        Columns of embeds behind the first `hidden` are added after the first layers, `hidden` after each. Writes all tokens'
        keys and values to the cache.
        """

def attend(
    pool: ThreadPool,
    layer: int,
    batch: Batch,
    cache: KvCache,
    q: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    window: int | None = None,
    chunk: int | None = None,
    cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """Attend causally over one layer's pages of a ragged batch's T tokens; q and out are [T, heads, head_dim].

    A token sees the last `window` keys up to its own, by default all; with a `chunk`, those of its own chunk of so many
    positions, counted from the sequence's start. Scores are at most `cap`: cap * tanh(score / cap). `sinks` float32 [heads]
    are scores that join a head's denominator alone. Raises ValueError if there is no such layer, the window, chunk or cap
    is not positive, or the batch does not fit the cache.
    """

def attend_sequences(
    pool: ThreadPool,
    qkv: torch.Tensor,
    cosine: torch.Tensor,
    sine: torch.Tensor,
    groups: collections.abc.Sequence[typing.Annotated[collections.abc.Sequence[int], "FixedSize(3)"]],
    out: torch.Tensor,
    scale: float,
) -> None:
    """Attend from all rows of a sequence to all of them.

    qkv are queries, keys and values [rows, 3, heads, head_dim] before rotation, out is [rows, heads, head_dim]. cosine and
    sine are float32 [rows, head_dim / 2]: an element of a head's first half turns with that of the second half. `groups`
    are (first row, number of sequences, rows of each). Raises ValueError for an odd head_dim, or groups outside the rows.
    """

def file_rules_version() -> int:
    """Return the version of Landlock that the kernel has; 0: none."""

def has_call_filters() -> bool:
    """Return whether the kernel has filters of system calls, and this architecture's calls are known."""

def instruction_set() -> str:
    """Return the instruction set in use: the fastest, unless another was selected."""

def instruction_sets() -> list[str]:
    """Return the instruction sets that this machine can run, the fastest first; the last is "plain"."""

def likeliest(pool: ThreadPool, logits: torch.Tensor, out: torch.Tensor) -> None:
    """Write out int64 [rows]: the place of the highest of each row of logits, float32 [rows, width].

    Of equal ones it is the first. What is no number is passed over.
    """

def linear(pool: ThreadPool, x: torch.Tensor, weight: Weight, y: torch.Tensor) -> None:
    """Write y float32 [rows, outputs]: x [rows, inputs] times the transposed weight, plus its bias."""

def linear_then(
    pool: ThreadPool, x: torch.Tensor, weight: Weight, step: str, other: torch.Tensor | None, y: torch.Tensor
) -> None:
    """Write y [rows, outputs]: a step of x [rows, inputs] times the transposed weight, plus its bias; rounded once.

    The step is "none", "silu", or "plus" or "times" `other` [rows, outputs], which may be y. Raises ValueError for another
    step, or if there is an `other` that it does not take.
    """

def restrict_calls(unix_sockets: bool) -> bool:
    """Have sockets, new processes and what is for administrators refused to all threads of this process.

    Sockets between processes of this machine are left if `unix_sockets`. Returns whether the kernel has filters (seccomp).
    Raises RuntimeError if it refuses.
    """

def restrict_files(
    readable: collections.abc.Sequence[str], writable: collections.abc.Sequence[str], unix_sockets: bool
) -> int:
    """Leave this thread, and those it starts, the files at and below these paths only; none can be executed.

    TCP, signals to other processes and, unless `unix_sockets`, abstract sockets of others are refused, too, where the kernel
    knows how. Returns the version of Landlock that was used, 0 if the kernel has none. Raises RuntimeError if it refuses.
    """

def rms_norm(pool: ThreadPool, x: torch.Tensor, weight: torch.Tensor, epsilon: float, out: torch.Tensor) -> None:
    """Write out: each row of x [rows, width] by its root mean square, times weight [width]; rounded once."""

def select_instruction_set(name: str) -> None:
    """Use an instruction set in this process from now on; raises ValueError if the machine cannot run it."""

def store_codes(
    pool: ThreadPool, layer: int, batch: Batch, cache: KvCache, keys: torch.Tensor, values: torch.Tensor
) -> None:
    """Write codes of a ragged batch's new keys and values [T, kv_heads, head_dim] to a layer's slots.

    A head's largest magnitude has the code 127. Raises TypeError for a cache without codes, ValueError if there is no such
    layer, or the batch does not fit the cache.
    """
