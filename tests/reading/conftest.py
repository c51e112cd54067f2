"""Processes that read, and what they are to read."""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from once import once, run_folder
from PIL import Image

from unifiedserve.config import EngineConfig
from unifiedserve.messages.media import Source
from unifiedserve.reading import keeper
from unifiedserve.reading import readers as readers_module
from unifiedserve.reading.jobs import Setup
from unifiedserve.reading.keeper import Nursery
from unifiedserve.reading.readers import Readers


@pytest.fixture(autouse=True)
def soon_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes that are stopped seen soon."""
    for module in (keeper, readers_module):
        monkeypatch.setattr(module, "_LOOK_SECONDS", 0.1)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.of(EngineConfig.of(allowed_local_media_path=str(tmp_path)))


@pytest.fixture
def nursery(setup: Setup) -> Iterator[Nursery]:
    nursery = Nursery(setup)
    yield nursery
    nursery.close()


@pytest.fixture
def readers(nursery: Nursery, setup: Setup) -> Iterator[Readers]:
    readers = Readers(nursery, setup)
    yield readers
    readers.close()


@pytest.fixture
def picture(tmp_path: Path) -> Source:
    pixels = np.random.default_rng(1).integers(0, 256, (30, 50, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return Source(path=str(tmp_path / "picture.png"))


@pytest.fixture
def slow(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Source:
    """Takes seconds to decode, inside the library."""
    made = once(run_folder(tmp_path_factory) / "slow.jpg", _encode_slowly)
    return Source(path=str(shutil.copy(made, tmp_path / "slow.jpg")))


def _encode_slowly(path: Path) -> None:
    data = io.BytesIO()
    Image.new("RGB", (12_000, 12_000)).save(data, "JPEG", progressive=True)
    progressive = data.getvalue()
    scan = progressive.rindex(b"\xff\xda")
    path.write_bytes(progressive[:scan] + progressive[scan:-2] * 60 + progressive[-2:])
