"""Tell a tensor's network by its name: the language model with its head, or the encoder."""

import re
from collections.abc import Callable
from typing import Any

from unifiedserve.placement import Network

NetworkOf = Callable[[str], Network]

#: of layers of cross-attention, whose keys and values are visual tokens
_MAKES_VISUAL_TOKENS = re.compile(r"\.cross_attn\.(k_proj|v_proj|k_norm)\.")


def networks_of_model(model: Any) -> NetworkOf:
    """Return what tells it by the names that tensors have in a model of transformers."""
    if model.config is model.config.get_text_config():
        return lambda name: Network.LANGUAGE
    text = [part for part in (model.get_decoder(), model.get_output_embeddings()) if part is not None]
    paths = tuple(f"{path}." for path, module in model.named_modules() if any(module is part for part in text))

    def network_of(name: str) -> Network:
        language = name.startswith(paths) and not _MAKES_VISUAL_TOKENS.search(name)
        return Network.LANGUAGE if language else Network.ENCODER

    return network_of
