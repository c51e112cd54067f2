"""The files that these tests read, and what they have in common."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from unifiedserve.cli.options import options_of
from unifiedserve.config import EngineConfig

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGING = REPOSITORY / "packaging"


@cache
def project(folder: str = ".") -> dict[str, Any]:
    """Return the pyproject.toml of a folder of the repository."""
    return tomllib.loads((REPOSITORY / folder / "pyproject.toml").read_text())


IMAGES = sorted((PACKAGING / "docker").iterdir())
TO_STOP = 15  # seconds after --drain-timeout to tell requests, close connections, send spans and end workers
OPTIONS = {"--" + field.name.replace("_", "-") for field, _ in options_of(EngineConfig)}


def options_of(arguments: list[str]) -> dict[str, str]:
    """Return the options of a command line `serve …` with their values. Fails for one that the server does not have."""
    assert arguments[0] == "serve"
    words = " ".join(arguments[1:]).replace("=", " ").split()
    found = {word: value for word, value in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}
    assert set(found) <= OPTIONS
    return found
