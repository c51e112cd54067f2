"""Name a language model's tensors as GGUF files do."""

import re
from collections.abc import Iterable

import gguf

#: what comes before the names of a language model's tensors in a model of several networks
_WITHIN = re.compile(r"(model\.)?(language_model|text_model)\.(?!lm_head)(model\.)?")
_LANGUAGE = re.compile(r"model\.(layers|embed_tokens|norm)\b|lm_head\b")
_BLOCK = re.compile(r"blk\.(\d+)\.")
#: two that have, between them, the names of all that attention and MLPs multiply with, in any architecture
_ARCHITECTURES = (gguf.MODEL_ARCH.LLAMA4, gguf.MODEL_ARCH.PHI3)


def language_name(name: str) -> str | None:
    """Return the name that a language model's tensor has in a model of its own; None for those of a vision tower."""
    if name.startswith("language_model.lm_head"):
        return name.removeprefix("language_model.")
    own = _WITHIN.sub("model.", name, count=1)
    return own if _LANGUAGE.match(own) else None


def matrix_names(names: Iterable[str], layers: int) -> dict[str, str]:
    """Return the files' names of matrices of attention and MLPs by the model's; others are left out."""
    known = [gguf.get_tensor_name_map(architecture, layers) for architecture in _ARCHITECTURES]
    found = {}
    for name in names:
        own = language_name(name)
        tried = (each.get_name(own, try_suffixes=(".weight",)) for each in known if own)
        if stored := next(filter(None, tried), None):
            found[name] = stored
    return found


def layer_of(name: str) -> int:
    """Return the number of the layer that a file's tensor belongs to; -1 for one of none."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else -1
