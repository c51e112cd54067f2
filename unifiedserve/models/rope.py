"""Settle rotary embeddings that change with a sequence's length.

That of each request counts, not that of others in a batch. As in transformers, the whole prompt's length counts for a
prompt's tokens, the length up to it for a generated one.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from unifiedserve.errors import ConfigError
from unifiedserve.models.hub import load_transformers

#: the positions of a long prompt begin here, by which its tokens and those after it are known
LONG = 1 << 30  # so that twice as much is an int32
_CHANGING = frozenset({"longrope", "dynamic"})


def settle_rope(language_model: Any, position_rows: int) -> None:
    """Let a text model's rotary embedding depend on each token's position alone. The model is transformers'.

    Raises ConfigError for one that changes and differs between kinds of layers, or has several positions for a token.
    """
    rotary: Any = getattr(language_model, "rotary_emb", None)
    kind = getattr(rotary, "rope_type", None)
    kinds: set[Any] = set(kind.values()) if isinstance(kind, dict) else {kind}
    if kinds & _CHANGING and (isinstance(kind, dict) or position_rows > 1):
        config = language_model.config
        raise ConfigError(
            f"{config.name_or_path}/config.json: the rope_type {', '.join(sorted(kinds & _CHANGING))} of "
            f"{config.model_type} is not supported: only models with one rope for all layers and one position for each "
            "token can have it"
        )
    if kind == "longrope":
        language_model.rotary_emb = LongRope(rotary)
    elif kind == "dynamic":
        language_model.rotary_emb = _fixed(rotary, rotary.original_inv_freq)


class LongRope(nn.Module):
    """Take one set of rotations or another for each token. The module that it replaces takes one for all."""

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self._length: int = rotary.config.rope_parameters["original_max_position_embeddings"]
        frequencies = load_transformers().modeling_rope_utils.ROPE_INIT_FUNCTIONS["longrope"]
        beyond, _ = frequencies(rotary.config, rotary.inv_freq.device, seq_len=self._length + 1)
        self._short, self._long = _fixed(rotary, rotary.original_inv_freq), _fixed(rotary, beyond)

    def forward(self, x: Tensor, position_ids: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return cosines and sines, or complex numbers, as the module of transformers does.

        Rows of a third dimension of positions are all alike.
        """
        positions = position_ids & (LONG - 1)
        is_long = (position_ids.flatten(0, -2)[:1] >= self._length)[..., None]
        far, near = self._long(x, positions), self._short(x, positions)
        if isinstance(far, Tensor):
            return torch.where(is_long, far, near)
        return tuple(torch.where(is_long, *each) for each in zip(far, near, strict=True))


def _fixed(rotary: Any, frequencies: Tensor) -> Any:
    """Return a copy of a rotary embedding that keeps these frequencies."""
    copied = deepcopy(rotary)
    copied.rope_type = "default"
    copied.inv_freq = frequencies
    return copied
