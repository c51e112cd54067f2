"""A real engine behind a real HTTP server, and transformers' own answers beside it."""

import pickle
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import reference  # first: transformers needs torchvision here, and the engine hides it

# isort: split
import engine_wishes
import media
import pytest
import torch
from checkpoints import find_checkpoint
from daemon import KEY, Daemon
from engine_wishes import Options
from engines import Engines
from once import once, run_folder
from reference import Reference
from templates import TEMPLATES

from ipc_buffers import PagePool
from unifiedserve.config import EngineConfig
from unifiedserve.memory.row_buffer import RowBuffer


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_checkpoint(tmp_path_factory, "tiny")


@pytest.fixture(scope="session")
def hf(checkpoint: Path) -> Reference:
    return reference.load(checkpoint)


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], media.Clip]:
    """Makes (once) an H.264 clip of so many frames."""
    folder = run_folder(tmp_path_factory) / "engine-clips"
    made: dict[int, media.Clip] = {}

    def clip(frames: int) -> media.Clip:
        if frames not in made:
            path = once(folder / f"{frames}.mp4", lambda path: media.make_clip(path, frames))
            made[frames] = media.read_clip(path, frames)
        return made[frames]

    return clip


@pytest.fixture(scope="session")
def local_media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that `allowed_local_media_path="local media"` names."""
    return tmp_path_factory.mktemp("local-media")


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory, local_media: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts (or gives again) a daemon with these options, whose folders and files are given by name."""

    def resolve(options: Options) -> EngineConfig:
        paths = {"model": str(find_checkpoint(tmp_path_factory, str(options.get("model", "tiny"))))}
        if "chat_template" in options:
            name = str(options["chat_template"])
            file = run_folder(tmp_path_factory) / "templates" / f"{name}.jinja"
            paths["chat_template"] = str(once(file, lambda path: path.write_text(TEMPLATES[name])))
        if "api_key_file" in options:
            file = run_folder(tmp_path_factory) / "keys"
            paths["api_key_file"] = str(once(file, lambda path: path.write_text(f"anne {KEY}\n")))
        if "allowed_local_media_path" in options:
            paths["allowed_local_media_path"] = str(local_media)
        return EngineConfig.of(**{**options, **paths})

    engines = Engines(resolve)
    yield engines.serve
    engines.close()


@pytest.fixture
def daemon(request: pytest.FixtureRequest, serve: Callable[..., Daemon]) -> Daemon:
    """Return a daemon with the options that the test's `daemon` mark names."""
    fresh = request.node.get_closest_marker("fresh_daemon") is not None
    return serve(fresh=fresh, **engine_wishes.options(request.node))


@pytest.fixture
def second_daemon(request: pytest.FixtureRequest, daemon: Daemon, serve: Callable[..., Daemon]) -> Daemon:
    """Return a daemon beside `daemon`, with the other options that the test's `second_daemon` mark names."""
    return serve(**(engine_wishes.second_options(request.node) or {}))


@pytest.fixture(scope="session")
def once_a_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., object]:
    """Returns what `make()` returns, computed by whichever of pytest's workers asks first for `name`."""

    def remembered(name: str, make: Callable[[], object]) -> object:
        file = run_folder(tmp_path_factory) / "remembered" / name
        return pickle.loads(once(file, lambda path: path.write_bytes(pickle.dumps(make()))).read_bytes())

    return remembered


@pytest.fixture
def patches() -> Iterator[RowBuffer]:
    """A patch buffer for Qwen2.5-VL."""
    row_bytes = 3 * 2 * 14 * 14
    pool = PagePool.create(f"test-patches-{uuid.uuid4().hex[:12]}", 64, 16 * row_bytes)
    yield RowBuffer(pool, row_bytes, torch.uint8)
    pool.close()
    pool.unlink()


@pytest.fixture
def visual() -> Iterator[RowBuffer]:
    """A visual buffer with a row a page."""
    pool = PagePool.create(f"test-visual-{uuid.uuid4().hex[:12]}", 256, 64)
    yield RowBuffer(pool, 16, torch.float32)
    pool.close()
    pool.unlink()
