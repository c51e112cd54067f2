"""Folders of data sets in their real layouts, with empty media files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unifiedserve.bench.datasets.registry import DATA_SETS

Put = Callable[[str, Any], Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Return a function that writes a file below `tmp_path`: text and bytes as they are, anything else as JSON."""

    def write(name: str, content: Any = b"") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def put_media() -> Callable[[str, Path], None]:
    """Return a function that makes all media files that a data set's annotations name."""

    def make(name: str, folder: Path) -> None:
        found = DATA_SETS[name].find(folder)
        assert found
        for sample in DATA_SETS[name].read(*found):
            for medium in getattr(sample, "media", ()):
                Path(medium.path).parent.mkdir(parents=True, exist_ok=True)
                Path(medium.path).touch()

    return make
