"""Import models of `transformers` as layers alone, in processes that do nothing else with them.

Each model brings along what generates, processes inputs and trains, and its documentation is composed when it is
imported: a tenth of the time that a worker's imports take.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Unpack

from unifiedserve.models.stand_in import StandIn

_LIBRARY = "transformers"
_TEMPLATES = "jinja2"  # of prompts, which the server writes
#: modules, with what models take of them
_LEFT_OUT: dict[str, dict[str, Any]] = {
    "generation.utils": {"GenerationMixin": type("GenerationMixin", (), {})},
    "generation.continuous_batching.cache": {"PagedAttentionCache": type("PagedAttentionCache", (), {})},
    "processing_utils": {"Unpack": Unpack},
    "loss.loss_utils": {"LOSS_MAPPING": {"ForCausalLM": None}},
}


@contextmanager
def bare_models() -> Iterator[None]:
    """Leave these parts out of `transformers` and of its models, which are imported later.

    The modules are imported when another of their names is used.
    """
    if _LIBRARY in sys.modules:  # somebody has imported it for more
        yield
        return
    for name, given in _LEFT_OUT.items():
        StandIn(f"{_LIBRARY}.{name}", __path__=[], **given).take_place()
    hides = sys.modules.setdefault(_TEMPLATES, None) is None  # type: ignore[arg-type]  # import machinery: "not there"
    try:
        yield
    finally:
        if hides:
            del sys.modules[_TEMPLATES]
    leave_out_documentation()


def leave_out_documentation() -> None:
    """Leave models, configurations and processors that are imported from now on as they are written."""
    if writer := sys.modules.get(f"{_LIBRARY}.utils.auto_docstring"):
        for function in {"auto_class_docstring", "auto_method_docstring"} & vars(writer).keys():
            setattr(writer, function, lambda documented, **_: documented)
