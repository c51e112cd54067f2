"""Read the files of a model directory."""

import json
from pathlib import Path
from typing import Any

from unifiedserve.errors import ConfigError

WHOLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
GGUF_TABLE = "gguf.json"  # in the folder that stands for a GGUF file (models/gguf/)


def read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read a JSON object; `default` if there is no such file. Raises ConfigError for a missing or malformed one."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if default is not None:
            return default
        raise ConfigError(f"{path}: no such file; a model directory needs one") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected a JSON object")
    return value


def weight_files(model_dir: Path) -> list[Path]:
    """List a checkpoint's safetensors files in order; raises ConfigError if there are none or one is missing.

    As in transformers, the single file that has its name comes before an index, and excludes all others.
    """
    if (model_dir / WHOLE_FILE).is_file():
        return [model_dir / WHOLE_FILE]
    index = model_dir / INDEX_FILE
    if not index.is_file():
        found = sorted(path for path in model_dir.glob("*.safetensors") if path.is_file())
        if not found:
            raise ConfigError(f"{model_dir}: no .safetensors file; there are no weights to serve")
        return found
    names = _listed(index)
    if not names:
        raise ConfigError(f"{index}: its weight_map lists no files")
    missing = [name for name in names if not (model_dir / name).is_file()]
    if missing:
        raise ConfigError(f"{index} lists files that {model_dir} does not hold: {', '.join(missing)}")
    return [model_dir / name for name in names]


def _listed(index: Path) -> list[str]:
    """Return the files that an index lists. Raises ConfigError for one of another folder, or what is no list."""
    listed = read_json(index).get("weight_map", {})
    names = list(listed.values()) if isinstance(listed, dict) else [listed]
    for name in names:
        if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
            raise ConfigError(f"{index}: {name!r} is no file of this folder")
    return sorted(set(names))
