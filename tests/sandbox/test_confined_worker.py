"""A confined vision worker can use CUDA, which has sockets of its own, and says where it is not confined."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import fake_cuda
import msgspec
import pytest

from ipc_buffers import remove_stale_arenas
from unifiedserve.config import DeviceName, EngineConfig
from unifiedserve.memory.shared import EngineLayout, MemoryLayout, PoolSize
from unifiedserve.placement import FIRST_MEMORY, read_placement
from unifiedserve.sandbox import missing
from unifiedserve.worker.spec import WorkerSpec

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"the kernel cannot confine {missing()}")

SHARED_MEMORY = Path("/dev/shm")
PLACEMENT = read_placement("shared", ())
SIZE = PoolSize(4, 4096)
SECONDS = 60.0
OWNER = """
import sys
from ipc_buffers import Memory
memory = Memory.create(sys.argv[1], 1 << 20, "cuda:0")
memory.write(0, b"outside")
print("ready", flush=True)
sys.stdin.read()
print(memory.read(8, 6).decode())
"""
CONFINED = """
import socket, sys, threading
import msgspec
from ipc_buffers import Memory
from unifiedserve.errors import ConfigError
from unifiedserve.worker.confinement import confine
from unifiedserve.worker.spec import WorkerSpec
spec = msgspec.json.decode(sys.argv[1], type=WorkerSpec)
{tried}
"""
SHARES = """
confine(spec)
memory = Memory.attach(sys.argv[2])
print(memory.read(0, 7).decode())
memory.write(8, b"inside")
"""
TRIES = """
confine(spec)
for attempt in (lambda: socket.socket(socket.AF_INET), lambda: open("/etc/passwd")):
    try:
        attempt()
    except PermissionError:
        print("refused")
"""
HAS_A_THREAD = """
threading.Thread(target=threading.Event().wait, name="early", daemon=True).start()
required = msgspec.structs.replace(spec, config=spec.config.changed(sandbox="require"))
try:
    confine(required)
except ConfigError as error:
    print(error)
confine(spec)
open("/etc/passwd")
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cuda.build(tmp_path_factory.mktemp("fake-cuda"))


@pytest.fixture(params=["stand-in", pytest.param("driver", marks=pytest.mark.gpu)])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A name for memory on a GPU: a stand-in's, whose memory is files where the worker may write, or a real one."""
    name = f"test-inside-{uuid.uuid4().hex[:12]}"
    folder = SHARED_MEMORY / name
    if request.param == "stand-in":
        folder.mkdir()
        fake_cuda.use(request.getfixturevalue("library"), folder, monkeypatch)
    yield name
    remove_stale_arenas()
    if folder.is_dir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def confined(name: str, device: DeviceName, tried: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in a process that has been confined as a vision worker is."""
    spec = WorkerSpec(
        config=EngineConfig(),
        placement=PLACEMENT,
        instance=PLACEMENT.instances[0],
        number=1,
        layout=EngineLayout(name, {FIRST_MEMORY: MemoryLayout(SIZE, SIZE, SIZE)}, ("vision",)),
        device=device,
        model_dir="",
        dtype="bfloat16",
        patch_row_bytes=64,
        visual_dim=64,
        vocab_size=64,
        eos_token_ids=(0,),
    )
    command = [sys.executable, "-c", CONFINED.format(tried=tried), msgspec.json.encode(spec).decode(), name]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


def test_memory_of_a_gpu_is_shared_with_it(name: str) -> None:
    command = [sys.executable, "-c", OWNER, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        done = confined(name, "cuda", SHARES)
        told, _ = owner.communicate()
    assert not done.returncode, done.stderr
    assert (done.stdout, told) == ("outside\n", "inside\n")


def test_beside_a_gpu_nothing_else_is_given_back() -> None:
    assert confined("none", "cuda", TRIES).stdout == "refused\n" * 2


def test_threads_that_cannot_be_confined_are_told_of() -> None:
    done = confined("none", "cpu", HAS_A_THREAD)
    assert done.stdout.startswith("--sandbox require: the sandbox leaves files")
    assert "leaves files to what runs already in the vision worker: thread early" in done.stderr
    assert "PermissionError" in done.stderr
