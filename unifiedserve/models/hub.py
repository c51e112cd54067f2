"""Find checkpoints by their names. This is the only door to `transformers`."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from unifiedserve.errors import ConfigError
from unifiedserve.heap import without_collections
from unifiedserve.models.bare_models import leave_out_documentation
from unifiedserve.models.deferred_compiler import defer_compiler
from unifiedserve.models.deferred_hub import hub_deferred
from unifiedserve.models.deferred_torch import is_torch_deferred
from unifiedserve.models.quick_listing import quicken_listing

CHECKPOINT_FILES = ["*.json", "*.jinja", "*.txt", "*.model"]
WEIGHT_FILES = ["*.safetensors"]
_UNNEEDED = ("torchvision", "accelerate")


@cache
def load_transformers() -> Any:
    """Import `transformers` without what no server needs of it, and return it; later calls return the same module.

    It imports torchvision and accelerate wherever it finds them, fails where the installed torchvision does not match
    torch, and imports torch's distributed tensors and its compiler. Its (cached) checks for these are made to fail. A
    process that has imported one of them itself keeps it.
    """
    if not is_torch_deferred():
        defer_compiler()
    quicken_listing()
    with ExitStack() as undo:
        undo.enter_context(without_collections())
        undo.enter_context(hub_deferred())
        for name in _UNNEEDED:
            if name not in sys.modules:
                sys.modules[name] = None  # type: ignore[assignment]  # import machinery: "not there"
                undo.callback(sys.modules.pop, name)
        library = importlib.import_module("transformers.utils.import_utils")
        undo.enter_context(_answering_no(library, "is_torch_available"))
        for check in ("torchvision", "accelerate", "torch_distributed", "torch_flex_attn"):
            getattr(library, f"is_{check}_available")()
        # a config's `dtype` stays a name where torch has not been imported: it would be for this alone
        configuration: Any = importlib.import_module("transformers.configuration_utils")
        configuration.is_torch_available = _is_torch_here
    if is_torch_deferred():
        leave_out_documentation()
    else:
        with hub_deferred():
            importlib.import_module("transformers.modeling_utils")
    return importlib.import_module("transformers")


def _is_torch_here() -> bool:
    return not is_torch_deferred()


@contextmanager
def _answering_no(module: Any, function: str) -> Iterator[None]:
    """Have a module's function return False meanwhile."""
    before = getattr(module, function)
    setattr(module, function, lambda: False)
    try:
        yield
    finally:
        setattr(module, function, before)


def resolve_model(name: str, *, weights: bool = True) -> Path:
    """Return the directory of a checkpoint: a local one as it is, anything else as a hub id to download.

    Its weights are not downloaded unless they are wanted. Raises ConfigError if `name` is neither.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ConfigError(f"{name}: no such model directory")
    from huggingface_hub import snapshot_download

    try:
        patterns = CHECKPOINT_FILES + WEIGHT_FILES * weights
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"{name}: neither a directory nor a model that can be downloaded: {reason}") from error
