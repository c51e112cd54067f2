"""Tell how long the sequences of a text model may be."""

from typing import Any


def short_length(text_config: Any) -> int | None:
    """Return up to which length a text model has other rotations than beyond; None if they never change.

    "dynamic" ones are no different up to `max_position_embeddings`, which is as long as a request may be.
    """
    rope = getattr(text_config, "rope_parameters", None) or {}
    length: int | None = rope["original_max_position_embeddings"] if rope.get("rope_type") == "longrope" else None
    return length


def context_length(text_config: Any) -> int:
    """Return how many positions a text model has.

    Those of YaRN (arXiv:2309.00071) are `factor` times the original ones: Qwen's cards add it to a `config.json` and
    leave `max_position_embeddings` as it is.
    """
    longest: int = text_config.max_position_embeddings
    rope = getattr(text_config, "rope_parameters", None) or {}
    if rope.get("rope_type") != "yarn":
        return longest
    return max(longest, int(rope.get("original_max_position_embeddings", longest) * rope["factor"]))
