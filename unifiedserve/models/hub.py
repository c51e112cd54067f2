"""The only door to `transformers`: import its parts through here.

`transformers` imports torchvision wherever it finds it, and fails with it where the installed torchvision does
not match torch. The engine needs nothing of it, so transformers is told that there is none.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from unifiedserve.errors import ConfigError

CHECKPOINT_FILES = ["*.json", "*.jinja", "*.safetensors", "*.txt", "*.model"]


def hide_torchvision() -> None:
    """Make transformers' (cached) check for torchvision say no; without effect once torchvision is imported."""
    if "torchvision" in sys.modules:
        return
    sys.modules["torchvision"] = None  # type: ignore[assignment]  # import machinery: "not there"
    try:
        import_utils = importlib.import_module("transformers.utils.import_utils")
        import_utils.is_torchvision_available()
    finally:
        del sys.modules["torchvision"]


hide_torchvision()
transformers: Any = importlib.import_module("transformers")


def resolve_model(name: str) -> Path:
    """The directory of a checkpoint: a local one as it is, anything else as a hub id to download.

    Raises ConfigError if it is neither.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ConfigError(f"{name}: no such model directory")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=CHECKPOINT_FILES))
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"{name}: neither a directory nor a model that can be downloaded: {reason}") from error
