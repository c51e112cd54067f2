"""Rotary embeddings that change with a sequence's length, by that of each request: others in a batch do not count.

As in transformers, the whole prompt's length counts for a prompt's tokens, the length up to it for a generated one.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from unifiedserve.errors import ConfigError
from unifiedserve.models.hub import load_transformers

#: the positions of a long prompt begin here, by which its tokens and those after it are known
LONG = 1 << 30  # so that twice as much is an int32
_CHANGING = frozenset({"longrope", "dynamic"})


def short_length(text_config: Any) -> int | None:
    """Return up to which length a text model has other rotations than beyond; None if they never change.

    "dynamic" ones are no different up to `max_position_embeddings`, which is as long as a request may be.
    """
    rope = getattr(text_config, "rope_parameters", None) or {}
    length: int | None = rope["original_max_position_embeddings"] if rope.get("rope_type") == "longrope" else None
    return length


def check_rope(text_config: Any, name: str) -> None:
    """Raise ConfigError for rotary embeddings that are not known; `name` is the config's."""
    rope = getattr(text_config, "rope_parameters", None) or {}
    of_layers = [each for each in rope.values() if isinstance(each, dict)]
    kinds = {each.get("rope_type") for each in of_layers or [rope]} & _CHANGING
    if kinds and (of_layers or "mrope_section" in rope):
        what = "of some layers" if of_layers else "with an mrope_section"
        raise ConfigError(f"{name}: rope_parameters {what} has rope_type {kinds.pop()!r}, which is not supported there")


def settle_rope(language_model: Any) -> None:
    """Let the rotary embedding of a text model of transformers depend on each token's position alone."""
    rotary: Any = getattr(language_model, "rotary_emb", None)
    kind = getattr(rotary, "rope_type", None)
    if kind == "longrope":
        language_model.rotary_emb = LongRope(rotary)
    elif kind == "dynamic":
        language_model.rotary_emb = _fixed(rotary, rotary.original_inv_freq)


class LongRope(nn.Module):
    """Takes one set of rotations or another for each token, in place of a module that takes one for all."""

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self._length: int = rotary.config.rope_parameters["original_max_position_embeddings"]
        frequencies = load_transformers().modeling_rope_utils.ROPE_INIT_FUNCTIONS["longrope"]
        beyond, _ = frequencies(rotary.config, rotary.inv_freq.device, seq_len=self._length + 1)
        self._short, self._long = _fixed(rotary, rotary.original_inv_freq), _fixed(rotary, beyond)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, as the module of transformers does."""
        positions = position_ids & (LONG - 1)
        is_long = (position_ids >= self._length)[..., None]
        both = zip(self._long(x, positions), self._short(x, positions), strict=True)
        cosine, sine = (torch.where(is_long, far, near) for far, near in both)
        return cosine, sine


def _fixed(rotary: Any, frequencies: Tensor) -> Any:
    """Return a copy of a rotary embedding that keeps these frequencies."""
    copied = deepcopy(rotary)
    copied.rope_type = "default"
    copied.inv_freq = frequencies
    return copied
