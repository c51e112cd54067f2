"""Find vision towers in GGUF files (mmproj), and the family of each by its projector."""

from collections.abc import Mapping
from pathlib import Path

from unifiedserve.errors import ConfigError
from unifiedserve.models.gguf.file import TOWER, GGUFFile
from unifiedserve.models.gguf.towers.base import Tower
from unifiedserve.models.gguf.towers.gemma3 import Gemma3
from unifiedserve.models.gguf.towers.idefics3 import Idefics3
from unifiedserve.models.gguf.towers.internvl import InternVL
from unifiedserve.models.gguf.towers.qwen2_vl import Qwen2VL, Qwen25VL
from unifiedserve.models.gguf.towers.qwen3_vl import Qwen3VL

TOWERS: Mapping[str, Tower] = {
    tower.projector: tower for tower in (Gemma3(), Idefics3(), InternVL(), Qwen2VL(), Qwen25VL(), Qwen3VL())
}
#: language models that are served with a tower only
NEED_ONE = frozenset({"qwen2vl", "qwen3vl"})
_NAMES = "*mmproj*.gguf"


def tower_path(model: Path, given: str) -> Path | None:
    """Return the tower's file: the `given` one, or the only one beside a model's file, as its name tells.

    None if there is none. Raises ConfigError if there are several.
    """
    if given:
        return Path(given).expanduser().absolute()
    found = sorted(path for path in model.parent.glob(_NAMES) if path != model)
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(f"{model}: several vision towers lie beside it ({names}): name one with --mmproj")
    return found[0] if found else None


def tower_of(file: GGUFFile, model: GGUFFile) -> Tower:
    """Return what is known of a tower's file. Raises ConfigError if it is none, unknown or another model's."""
    projector = projector_of(file)
    tower = TOWERS.get(projector)
    if tower is None:
        raise ConfigError(
            f"{file.path}: vision towers with the projector {projector!r} are not supported; "
            f"those that are: {', '.join(sorted(TOWERS))}"
        )
    if model.architecture not in tower.architectures:
        raise ConfigError(
            f"{file.path}: this vision tower ({projector}) belongs to language models of the architecture "
            f"{' or '.join(sorted(tower.architectures))}, and {model.path.name} is of {model.architecture}"
        )
    ours, theirs = file.needed("vision.projection_dim"), model.needed("embedding_length")
    if ours != theirs:
        raise ConfigError(
            f"{file.path}: this vision tower makes tokens of {ours} numbers, and {model.path.name} reads {theirs}: "
            "it is another model's"
        )
    return tower


def projector_of(file: GGUFFile) -> str:
    """Return the name of a tower's projector. Raises ConfigError for the file of something else."""
    if file.architecture != TOWER:
        raise ConfigError(f"{file.path}: --mmproj needs a vision tower's file, and this is of {file.architecture!r}")
    return str(file.own_field("projector_type") or file.own_field("vision.projector_type"))
