"""Pool a prompt's hidden states into one vector, as checkpoints that make embeddings do.

Such checkpoints are as sentence-transformers saves them: modules.json lists the model, a pooling and maybe a
normalisation.
"""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json

Mode = Literal["cls", "lasttoken", "mean"]
Vector = npt.NDArray[np.float32]


class Pooling(NamedTuple):
    """Choose the rule that pools hidden states, and whether the vector has length 1.

    `dimensions` are the lengths to which it may be cut: none, these, or any (None), for a model trained for that.
    """

    mode: Mode
    normalize: bool
    dimensions: tuple[int, ...] | None = ()

    def finish(self, pooled: Vector, dimensions: int | None = None) -> Vector:
        """Make the embedding of a pooled vector, of its first `dimensions` if given."""
        vector = pooled[:dimensions]
        return vector / max(float(np.linalg.norm(vector)), 1e-12) if self.normalize else vector


def load_pooling(model_dir: Path) -> Pooling | None:
    """Read a checkpoint's pooling; None if it generates text. Raises ConfigError for a pooling of another kind."""
    modules = _modules(model_dir / "modules.json")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if "Pooling" not in kinds:
        return None
    if kinds[1:] not in (["Pooling"], ["Pooling", "Normalize"]):
        raise ConfigError(
            f"{model_dir / 'modules.json'}: embeddings by {', '.join(kinds)} are not supported; "
            "what is supported is a model, Pooling and Normalize"
        )
    mode = _mode(model_dir / str(modules[1].get("path", "")) / "config.json")
    return Pooling(mode, "Normalize" in kinds, _dimensions(read_json(model_dir / "config.json")))


def _modules(path: Path) -> list[dict[str, Any]]:
    try:
        modules = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ConfigError(f"{path}: expected a JSON array of objects")
    return modules


def _mode(path: Path) -> Mode:
    """Return the mode. Older files give it by a flag for each and newer ones by its name."""
    config = read_json(path)
    flags = {"cls": "pooling_mode_cls_token", "lasttoken": "pooling_mode_lasttoken", "mean": "pooling_mode_mean_tokens"}
    on = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    for mode in get_args(Mode):
        if on == [flags[mode]] or (not on and config.get("pooling_mode") == mode):
            found: Mode = mode
            return found
    given = ", ".join(on) or config.get("pooling_mode", "no mode")
    raise ConfigError(f"{path}: pooling by {given} is not supported; supported is one of {', '.join(flags.values())}")


def _dimensions(config: dict[str, Any]) -> tuple[int, ...] | None:
    if given := config.get("matryoshka_dimensions"):
        return tuple(given)
    return None if config.get("is_matryoshka") else ()
