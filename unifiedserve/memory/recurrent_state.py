"""Keep the states of linear attention in pages of the KV cache. Their size is constant for each sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

LINEAR_ATTENTION = "linear_attention"  # its name in a config's `layer_types`
FLOAT_BYTES = 4


class StateLayout(NamedTuple):
    """Lay out a sequence's state in float32.

    Each layer has the latest inputs of its convolution [channels, inputs], and the memory of the gated delta rule
    [heads, key_dim, value_dim].
    """

    layers: int
    channels: int
    inputs: int
    heads: int
    key_dim: int
    value_dim: int

    @property
    def bytes(self) -> int:
        return FLOAT_BYTES * self.layers * (self._inputs_size + self._memory_size)

    @staticmethod
    def of(text_config: Any) -> StateLayout | None:
        """Return the layout for a language model's config; None if all of its layers have full attention."""
        layers = (getattr(text_config, "layer_types", None) or []).count(LINEAR_ATTENTION)
        if not layers:
            return None
        heads, key_dim = text_config.linear_num_value_heads, text_config.linear_key_head_dim
        value_dim = text_config.linear_value_head_dim
        channels = 2 * text_config.linear_num_key_heads * key_dim + heads * value_dim
        return StateLayout(layers, channels, text_config.linear_conv_kernel_dim - 1, heads, key_dim, value_dim)

    def views(self, floats: Tensor) -> tuple[Tensor, Tensor]:
        """View states [B, n] as [B, layers, channels, inputs] and [B, layers, heads, key_dim, value_dim]; no copy."""
        sizes = self.layers * self._inputs_size, self.layers * self._memory_size
        inputs, memory, _ = torch.split(floats, [*sizes, floats.shape[1] - sum(sizes)], dim=1)
        states = len(floats), self.layers
        return (
            inputs.view(*states, self.channels, self.inputs),
            memory.view(*states, self.heads, self.key_dim, self.value_dim),
        )

    @property
    def _inputs_size(self) -> int:
        return self.channels * self.inputs

    @property
    def _memory_size(self) -> int:
        return self.heads * self.key_dim * self.value_dim


class RecurrentStates:
    """Hold the states of a batch's sequences during a step; zero where a sequence begins.

    `pages` uint8 [n, page bytes] is the cache, `numbers` int64 [B, m] says which of its pages hold each state, `begins`
    int64 [b] which of the sequences begin.
    """

    def __init__(self, layout: StateLayout, pages: Tensor, numbers: Tensor, begins: Tensor) -> None:
        self._pages, self._numbers = pages, numbers
        self._states = pages[numbers]
        self._states.index_fill_(0, begins, 0)
        self.inputs, self.memory = layout.views(self._states.flatten(1).view(torch.float32))

    def store(self) -> None:
        """Write the states back to their pages."""
        self._pages[self._numbers] = self._states
