"""What all tests share: the data folder, the GPU marker, and a check that no shared memory is left."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from unifiedserve.doctor import gpu

REPOSITORY = Path(__file__).resolve().parents[1]
DATA_FOLDER = REPOSITORY.parent / "shared" / "data"

# Read by torch when it is first imported, here and in every worker that a test starts.
os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))
# Tests must not depend on a network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# What a shell starts in the background ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of test videos that lies beside a checkout on some machines."""
    if not DATA_FOLDER.is_dir():
        pytest.skip(f"no test videos at {DATA_FOLDER}")
    return DATA_FOLDER


@pytest.fixture(scope="session")
def sample_clip() -> Path:
    """The H.264 clip that comes with the package."""
    return REPOSITORY / "unifiedserve" / "samples" / "telescope.mp4"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu.has_device():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(scope="session", autouse=True)
def no_shared_memory_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the run when an arena of ours outlives its tests. Arenas of other live processes are not ours."""
    before = orphaned_arenas()
    yield
    if request.session.exitstatus == pytest.ExitCode.INTERRUPTED:
        return  # Ctrl-C: nobody cleaned up, and the report of what was interrupted matters more
    left = sorted(orphaned_arenas() - before)
    assert not left, f"left in shared memory: {', '.join(left)}"


def orphaned_arenas() -> set[str]:
    """Arenas that this process, or one that no longer lives, created."""
    try:
        from ipc_buffers import list_arenas
    except ImportError:
        return set()
    return {arena.name for arena in list_arenas() if not arena.alive or arena.pid == os.getpid()}
