"""What references are made of and compared with: each family's tiny checkpoint and its conversations.

They are those of the tests, whose modules this makes importable.
"""

import hashlib
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from bench.gpu import machine

BUNDLED = "bundled"
TOKENS = 24
FILE = "references.npz"

Arrays = Mapping[str, npt.NDArray[Any]]


def import_tests() -> Any:
    """Return the tests' module of the conversations that every family is asked."""
    for folder in ("tests/checkpoints", "tests/suite"):
        sys.path.insert(0, str(machine.ROOT / folder))
    importlib.import_module("every_family")
    return importlib.import_module("conformance_cases")


def families() -> list[str]:
    """Return all families' names, and that of the bundled model. Call `import_tests` first."""
    return [*importlib.import_module("builders").FAMILIES, BUNDLED]


def checkpoint(family: str, folder: Path) -> Path:
    """Return a family's checkpoint, made in `folder` unless it comes with the package."""
    if family == BUNDLED:
        return machine.ROOT / "unifiedserve/bundled_model"
    made = folder / family
    made.mkdir(parents=True, exist_ok=True)
    importlib.import_module("builders").FAMILIES[family].make(made)
    return made


def cases(family: str) -> dict[str, Any]:
    """Return the conversations that a family can have, as the tests choose them."""
    tests, builders = importlib.import_module("conformance_cases"), importlib.import_module("builders")
    found = builders.Family(checkpoint, frozenset({"image", "video"}), True)
    found = builders.FAMILIES.get(family, found)
    return dict(tests.cases(found))


def digest(model: Path) -> str:
    """Return a digest of a checkpoint's weights, whatever else its files hold."""
    found = hashlib.sha256()
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in sorted(tensors.keys()):
                found.update(name.encode())
                found.update(tensors.get_tensor(name).float().numpy().tobytes())
    return found.hexdigest()[:16]


def distance(found: npt.NDArray[np.float32], exact: npt.NDArray[np.float32]) -> float:
    """Return how far off logits are, relative to the exact ones."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def load(folder: Path) -> dict[str, npt.NDArray[Any]]:
    """Return what make_references.py wrote, by "family/what"."""
    with np.load(folder / FILE) as arrays:
        return dict(arrays)
