"""Stop encoders between their layers, so that short prompts need not wait for a batch.

Towers of transformers have one `forward` for all layers; a greenlet leaves it and comes back.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet
from torch import nn

T = TypeVar("T")


def pause() -> None:
    """Let the runner by `layer_by_layer` go on, until it comes back. An encoder that is not run so does not pause."""
    running = getcurrent()
    if isinstance(running, _Encoding) and running.parent is not None:
        running.parent.switch()


def pause_before_each_layer(model: Any, language_model: Any) -> None:
    """Have a model of transformers pause before each layer of what encodes media."""
    own = set(language_model.modules())
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList) and stack not in own:
            for layer in stack:
                layer.register_forward_pre_hook(lambda *_: pause())


def layer_by_layer(encode: Callable[[], T]) -> Generator[None, None, T]:
    """Run `encode`, yield wherever it pauses, and return its result; one that is given up leaves its blocks."""
    encoding = _Encoding(encode)
    try:
        while True:
            result: T = encoding.switch()
            if encoding.dead:
                return result
            yield
    finally:
        if not encoding.dead:
            encoding.throw()


def run_through(layers: Generator[None, None, T]) -> T:
    """Run a generator that yields before each layer to its end. Returns its result."""
    while True:
        try:
            next(layers)
        except StopIteration as ended:
            result: T = ended.value
            return result


class _Encoding(greenlet):
    """Run an encoder layer by layer."""
