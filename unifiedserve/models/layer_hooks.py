"""Where other work can go in between: before each layer of a vision encoder."""

from collections.abc import Callable
from typing import Any

from torch import nn


def before_each_layer(model: Any, language_model: Any, call: Callable[[], None]) -> None:
    """Have `call` run before each layer of what encodes media in a model of transformers."""
    own = set(language_model.modules())
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList) and stack not in own:
            for layer in stack:
                layer.register_forward_pre_hook(lambda *_: call())
