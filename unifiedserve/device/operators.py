"""Define the operators that a GPU's kernels must offer. All tensors are on the device, plans are of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from unifiedserve.attention import PLAIN, AttentionRules, CrossSpan, RaggedBatch

if TYPE_CHECKING:
    from torch import Tensor

#: makes [T, outputs] of [T, inputs], weights [outputs, inputs] and a bias [outputs] or None, as torch's `linear`
Multiply: TypeAlias = "Callable[[Tensor, Tensor, Tensor | None], Tensor]"


class PlannedAttention(Protocol):
    """Attend from a step's queries to keys and values that are there already."""

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, scale: float, rules: AttentionRules = PLAIN) -> Tensor:
        """Attend: q and the result [T, q_heads, head_dim]; keys, values [num_pages, page_size, kv_heads, head_dim]."""


class Attention(Protocol):
    """Wrap a library of attention kernels. `groups` query heads share a key/value head."""

    def of_batch(self, batch: RaggedBatch, groups: int) -> PlannedAttention:
        """Plan attention within the sequences of a batch, as `AttentionStep.attend` has it."""

    def of_rows(self, lengths: Tensor, table: Tensor, context: int, groups: int, scratch: Tensor) -> PlannedAttention:
        """Plan attention of one new token a row by work on the device. It may be recorded, whatever the values.

        lengths: int32 [R], tokens of context with the new one, 0: no sequence, whose result may be anything; table:
        int32 [R, pages], contiguous, their pages. No length is above `context`. `scratch`, float32, is overwritten; as
        much is needed as `scratch_of_rows` says.
        """

    def scratch_of_rows(self, rows: int, context: int, heads: int, head_dim: int) -> int:
        """Return the most float32 of scratch that `of_rows` needs for so many query heads."""

    def of_spans(self, spans: Sequence[CrossSpan], groups: int) -> PlannedAttention:
        """Plan attention across: each span's tokens attend to all of its rows, which are pages of one key."""


class Pointwise(Protocol):
    """Compute what is between the matrix products of a layer. All is summed in float32 and rounded once."""

    def add_rms_norm(self, residual: Tensor, delta: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        """Add delta [T, hidden] to the residual, float32 [T, hidden], in place; return its norm in weight's dtype."""

    def store_kv(
        self,
        qkv: Tensor,
        cosine: Tensor,
        sine: Tensor,
        keys: Tensor,
        values: Tensor,
        slots: Tensor,
        query_norm: Tensor | None = None,
        key_norm: Tensor | None = None,
        epsilon: float = 0.0,
    ) -> Tensor:
        """Rotate queries and keys, and write keys and values into their slots.

        Returns the queries [T, q_heads, head_dim]. qkv: [T, (q_heads + 2 * kv_heads) * head_dim]; cosine, sine: float32
        [T, rotary_dim]; keys, values: a layer's [num_pages, page_size, kv_heads, head_dim]; slots: int64 [T], below 0:
        nowhere. Heads are normalised first if there are norms.
        """

    def silu_mul(self, gate_up: Tensor, width: int | None = None) -> Tensor:
        """Return silu(gate) * up [T, intermediate] of gate_up [T, 2 * intermediate]; [T, width] with zeros behind."""

    def rotate_heads(self, heads: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Rotate [T, heads, head_dim] in place by float32 [T, head_dim / 2]. Its rows may lie apart."""
