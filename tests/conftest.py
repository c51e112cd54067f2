"""What all tests share: the data folder, the GPU marker, and one thread for torch."""

import contextlib
import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from unifiedserve.doctor import gpu

pytest_plugins = ["command_line", "engine_starts", "order", "shared_memory"]

REPOSITORY = Path(__file__).resolve().parents[1]
DATA_FOLDER = REPOSITORY.parent / "shared" / "data"

# Where Python may write no bytecode beside its sources, as in many images, it writes it to a folder of its own: each
# process that a test starts would compile again all that it imports.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(REPOSITORY / "build" / "bytecode")
# One thread for torch, here and in what tests start: tiny models gain nothing from more, and two workers of pytest
# share the cores. Read when torch is first imported.
os.environ["OMP_NUM_THREADS"] = "1"
# Tests must not depend on a network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Imports and the collection of tests leave no garbage worth the looking.
gc.disable()
# How long a server or an example takes says how busy the machine is. There is no other way to tell httpx once for all.
with contextlib.suppress(ImportError):  # FlashCodec is tested without it, too
    from httpx._config import DEFAULT_TIMEOUT_CONFIG

    for bound in ("connect", "read", "write", "pool"):
        setattr(DEFAULT_TIMEOUT_CONFIG, bound, 300.0)
settings.register_profile("short", deadline=None, max_examples=40)
settings.register_profile("long", deadline=None)
settings.load_profile("short")
# What a shell starts in the background ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of test videos that lies beside a checkout on some machines."""
    if not DATA_FOLDER.is_dir():
        pytest.skip(f"no test videos at {DATA_FOLDER}")
    return DATA_FOLDER


@pytest.fixture(scope="session")
def sample_clip() -> Path:
    """Return the H.264 clip that comes with the package."""
    return REPOSITORY / "unifiedserve" / "samples" / "telescope.mp4"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long forms, too: every combination, not some of each")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        settings.load_profile("long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="a long form: --long runs it"))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu.has_device():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


def pytest_collection_finish() -> None:
    """What is imported by now stays: collections of garbage in tests need not look through it."""
    gc.collect()
    gc.freeze()
    gc.enable()
