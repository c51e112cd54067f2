"""Find checkpoints by their names. This is the only door to `transformers`."""

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

from unifiedserve.errors import ConfigError

CHECKPOINT_FILES = ["*.json", "*.jinja", "*.txt", "*.model"]
WEIGHT_FILES = ["*.safetensors"]


@cache
def load_transformers() -> Any:
    """Import `transformers` without torchvision and return it; later calls return the same module.

    `transformers` imports torchvision wherever it finds it, and fails with it where the installed torchvision does not
    match torch. The engine needs nothing of it, so the (cached) check for it is made to fail. A process that has
    imported torchvision itself keeps it.
    """
    if "torchvision" in sys.modules:
        return importlib.import_module("transformers")
    sys.modules["torchvision"] = None  # type: ignore[assignment]  # import machinery: "not there"
    try:
        importlib.import_module("transformers.utils.import_utils").is_torchvision_available()
    finally:
        sys.modules.pop("torchvision", None)
    return importlib.import_module("transformers")


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
