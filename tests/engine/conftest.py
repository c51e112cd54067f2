"""A real engine behind a real HTTP server, and transformers' own answers beside it."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import reference  # first: transformers needs torchvision here, and the engine hides it

# isort: split
import daemon
import media
import pytest
import torch
from reference import Reference

from ipc_buffers import PagePool
from unifiedserve.config import EngineConfig
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.models.tiny import make_checkpoint

torch.set_num_threads(2)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def hf(checkpoint: Path) -> Reference:
    return reference.load(checkpoint)


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], media.Clip]:
    """Makes (once) an H.264 clip of so many frames."""
    folder = tmp_path_factory.mktemp("clips")
    made: dict[int, media.Clip] = {}

    def clip(frames: int) -> media.Clip:
        if frames not in made:
            made[frames] = media.make_clip(folder / f"{frames}.mp4", frames)
        return made[frames]

    return clip


@pytest.fixture(scope="session")
def serve(checkpoint: Path) -> Iterator[Callable[..., daemon.Daemon]]:
    """Starts (or gives again) a daemon with these options; at most one runs at a time."""
    with ExitStack() as stack:
        running: list[tuple[EngineConfig, daemon.Daemon]] = []

        def start(**options: object) -> daemon.Daemon:
            defaults = {"model": str(checkpoint), "dtype": "float32", "kv_cache_mib": 64, "patch_buffer_mib": 64}
            config = EngineConfig(**{**defaults, **options})
            if running and running[-1][0] == config:
                return running[-1][1]
            stack.close()
            running.append((config, stack.enter_context(daemon.running(config))))
            return running[-1][1]

        yield start


@pytest.fixture
def patches() -> Iterator[RowBuffer]:
    """A patch buffer for Qwen2.5-VL."""
    row_bytes = 3 * 2 * 14 * 14
    pool = PagePool.create(f"test-patches-{uuid.uuid4().hex[:12]}", 64, 16 * row_bytes)
    yield RowBuffer(pool, row_bytes, torch.uint8)
    pool.close()
    pool.unlink()
