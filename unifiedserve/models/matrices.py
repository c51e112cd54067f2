"""Choose matrices for our kernels: which tensors of a checkpoint they are, and their places in a model."""

import re
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from unifiedserve.device.panels import PanelEmbedding, PanelLinear
from unifiedserve.memory.panels import StoredMatrix
from unifiedserve.memory.tensors import Header

_OTHERS = re.compile(r"(^|\.)(visual|vision)|\.experts\.|\.(gate|shared_expert_gate|in_proj_[ab])\.weight")
_LAYER = re.compile(r"(^|\.)layers\.\d+\.\S+\.weight")
_HEAD = re.compile(r"(^|\.)lm_head\.weight")
_EMBEDDING = re.compile(r"(^|\.)embed_tokens\.weight")
_TOWER_BLOCK = re.compile(r"(^|\.)visual\.blocks\.\d+\.\S+\.weight")
_TOWER = re.compile(
    r"(^|\.)(visual\.(blocks|merger|deepstack_merger_list)\.\S+|multi_modal_projector\.linear_\d)\.weight"
)
_ACTIVATED = re.compile(r"\.(down_proj|(linear_)?fc2)\.weight")


def language_matrices(config: Any) -> Callable[[str], bool]:
    """Return a function that tells by name whether the language model uses a matrix.

    Experts' are left out, as transformers takes all of a layer as one tensor; so are those with few outputs, on which
    much depends: what chooses the experts, and the decay of linear attention.
    """
    wanted = [_LAYER, _HEAD, *([_EMBEDDING] if _tied(config) else [])]
    return lambda name: not _OTHERS.search(name) and any(pattern.search(name) for pattern in wanted)


def head_matrix(config: Any) -> Callable[[str], bool]:
    """Return a function that tells by name whether the head uses a matrix."""
    pattern = _EMBEDDING if _tied(config) else _HEAD
    return lambda name: bool(pattern.search(name)) and not _OTHERS.search(name)


def tower_matrix(name: str) -> bool:
    """Tell whether our vision towers multiply with a matrix of this name."""
    return bool(_TOWER.search(name))


def tower_block(name: str) -> bool:
    """Tell whether a layer of our vision towers has a tensor of this name."""
    return bool(_TOWER_BLOCK.search(name))


def takes_even_rows(name: str) -> bool:
    """Tell whether a tower's layer multiplies what is normed or attended with it, not activations."""
    return tower_block(name) and not _ACTIVATED.search(name)


def known_matrices(config: Any, *, narrow: bool = False) -> Callable[[Header], bool]:
    """Return a function that tells of all matrices that are better in panels: also those of the vision towers.

    So are those between a tower and the language model, which torch multiplies otherwise for one picture than for many,
    and embeddings of codes, or where panels may be `narrow`: then they take less room than torch's.
    """
    language = language_matrices(config)

    def better(header: Header) -> bool:
        small = narrow or header.scheme is not None
        return language(header.name) or tower_matrix(header.name) or (small and bool(_EMBEDDING.search(header.name)))

    return better


def _tied(config: Any) -> bool:
    """Return whether the head is the embeddings."""
    return any(getattr(each, "tie_word_embeddings", False) for each in (config, config.get_text_config()))


def put_matrix(model: Any, name: str, stored: StoredMatrix, wanted: Tensor) -> None:
    """Let a model of transformers use a stored matrix as its parameter `name`. That is like `wanted`.

    A module that does nothing else with it is replaced; any other gets a copy of the rows.
    """
    path, _, parameter = name.rpartition(".")
    module = model.get_submodule(path)
    matrix = stored.matrix(wanted.shape)
    if type(module) is nn.Linear:
        model.set_submodule(path, PanelLinear(matrix, module.bias))
    elif isinstance(module, nn.Embedding):
        model.set_submodule(path, PanelEmbedding(matrix, module, wanted.dtype))
    else:
        setattr(module, parameter, nn.Parameter(matrix.rows(wanted.dtype), requires_grad=False))
