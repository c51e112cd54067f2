"""The zygote starts workers, says how they ended, and leaves nothing behind, whoever dies."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from daemon import Daemon

from ipc_buffers import list_arenas
from unifiedserve.config import EngineConfig
from unifiedserve.engine import zygote as zygote_module
from unifiedserve.engine.zygote import Zygote, ZygoteError
from unifiedserve.memory.shared import (
    ENGINE_INBOX,
    EngineLayout,
    MemoryLayout,
    PoolSize,
    SharedMemory,
    create_pages,
    free,
)
from unifiedserve.messages.wire import Ready, Shutdown, pack, unpack
from unifiedserve.placement import FIRST_MEMORY, Stage
from unifiedserve.worker.spec import WorkerSpec

CONFIG = EngineConfig.of(placement="shared")
VISION = next(instance for instance in CONFIG.machine.workers.instances if instance.stages == (Stage.VISION,))
SECONDS = 60.0
WITH_A_THREAD = """
import threading
from unifiedserve.worker import zygote
threading.Thread(target=threading.Event().wait, name="stranger", daemon=True).start()
zygote.main()
"""
WITH_JEMALLOC = """
import pyarrow
from unifiedserve.worker import zygote
zygote.main()
"""
WITH_A_GPU = """
import os
from unifiedserve.worker.fork_obstacles import fork_obstacles
print(fork_obstacles())
os.readlink = lambda name: "/dev/nvidiactl"
print(fork_obstacles())
"""
#: Its workers end with a code that their environment names, or the number of modules there that have been imported.
WITH_ITS_OWN_WORKERS = """
import os, sys
from unifiedserve.worker import loop, zygote
def run(spec):
    imported = [name for name in os.environ.get("MODULES", "").split() if name in sys.modules]
    os._exit(int(os.environ.get("CODE", len(imported))))
loop.run = run
zygote.main()
"""
#: A process with a zygote and a worker of it; their ids are its output.
OWNER = """
import os, sys, time
import msgspec
from ipc_buffers import Arena
from unifiedserve.engine.zygote import shared_zygote
from unifiedserve.worker.spec import WorkerSpec
zygote = shared_zygote()
worker = zygote.start(msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerSpec))
arena = Arena.create(f"test-owner-{os.getpid()}", 64)
print(worker.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def memory() -> Iterator[SharedMemory]:
    size = PoolSize(4, 4096)
    memories = {FIRST_MEMORY: MemoryLayout(size, size, size)}
    layout = EngineLayout(f"test-zygote-{uuid.uuid4().hex[:12]}", memories, (VISION.name,))
    pages = create_pages(layout, layout.engine_id)
    memory = SharedMemory.create(layout, pages)
    yield memory
    memory.unlink()
    free(pages.values())


@pytest.fixture(scope="module")
def spec(memory: SharedMemory) -> WorkerSpec:
    """A worker that only decodes videos: it needs no model."""
    return WorkerSpec(
        config=CONFIG,
        placement=CONFIG.machine.workers,
        instance=VISION,
        number=1,
        layout=memory.layout,
        device="cpu",
        model_dir="",
        dtype="float32",
        patch_row_bytes=64,
        visual_dim=64,
        vocab_size=64,
        eos_token_ids=(0,),
    )


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


def await_ready(memory: SharedMemory) -> None:
    (data,) = memory.inboxes[ENGINE_INBOX].receive_many(1, timeout=SECONDS)
    assert isinstance(unpack(data), Ready)


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def await_end(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(pid)
            assert select.select([ended], [], [], SECONDS)[0], f"process {pid} is left"
            os.close(ended)


def test_a_worker_that_is_told_to_end_ends_with_code_0(zygote: Zygote, spec: WorkerSpec, memory: SharedMemory) -> None:
    worker = zygote.start(spec)
    await_ready(memory)
    assert worker.wait(timeout=0) is None
    memory.inboxes[VISION.name].send(pack(Shutdown()))
    assert worker.wait(SECONDS) == 0


def test_a_killed_worker_s_code_is_minus_the_signal(zygote: Zygote, spec: WorkerSpec, memory: SharedMemory) -> None:
    workers = [zygote.start(spec) for _ in range(3)]
    assert len({worker.pid for worker in workers}) == 3
    for _ in workers:
        await_ready(memory)
    os.kill(workers[1].pid, signal.SIGKILL)
    assert workers[1].wait(SECONDS) == -signal.SIGKILL
    assert [workers[index].wait(timeout=0) for index in (0, 2)] == [None, None]
    for worker in workers:
        worker.kill()
    assert [worker.wait(SECONDS) for worker in workers] == [-signal.SIGKILL] * 3


def test_a_worker_that_fails_ends_with_code_1_and_its_traceback(
    zygote: Zygote, spec: WorkerSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    lost = msgspec.structs.replace(spec, patch_row_bytes=-1)
    assert zygote.start(lost).wait(SECONDS) == 1
    assert "Traceback" in capfd.readouterr().err


def test_a_worker_has_its_own_name_environment_and_directory(
    zygote: Zygote, spec: WorkerSpec, memory: SharedMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    worker = zygote.start(spec)
    await_ready(memory)
    process = psutil.Process(worker.pid)
    assert process.name() == f"us:{VISION.name}"
    assert process.cwd() == str(tmp_path)
    assert process.environ()["OMP_WAIT_POLICY"] == "PASSIVE"
    assert process.nice() == min(19, psutil.Process().nice() + VISION.nice)
    assert not sockets(worker.pid) & sockets(process.ppid())
    worker.kill()
    worker.wait(SECONDS)


def sockets(pid: int) -> set[str]:
    """Which sockets a process holds; those of another one would hide its end."""
    targets = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()}
    return {target for target in targets if target.startswith("socket:")}


def test_workers_end_with_the_zygote_and_that_is_noticed(spec: WorkerSpec, memory: SharedMemory) -> None:
    zygote = Zygote()
    workers = [zygote.start(spec) for _ in range(2)]
    for _ in workers:
        await_ready(memory)
    parent = psutil.Process(workers[0].pid).parent()
    assert parent is not None
    parent.kill()
    assert [worker.wait(SECONDS) for worker in workers] == [-signal.SIGKILL] * 2
    assert all(has_ended(worker.pid) for worker in workers)
    assert not zygote.alive
    with pytest.raises(ZygoteError, match="has ended"):
        zygote.start(spec)
    zygote.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_everything_ends_with_the_engine_s_process(
    spec: WorkerSpec, memory: SharedMemory, number: signal.Signals
) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write(msgspec.json.encode(spec))
        owner.stdin.close()
        worker = int(owner.stdout.readline())
        await_ready(memory)
        parent = psutil.Process(worker).ppid()
        os.kill(owner.pid, number)
        assert owner.wait(SECONDS) == -number
    await_end(worker, parent)
    assert f"test-owner-{owner.pid}" not in {arena.name for arena in list_arenas()}


def test_where_a_fork_would_not_work_workers_import_anew_and_nothing_else_tells_them_apart(
    spec: WorkerSpec,
    memory: SharedMemory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    zygote = Zygote(("-c", WITH_A_THREAD))
    monkeypatch.chdir(tmp_path)
    first = zygote.start(spec)
    await_ready(memory)
    memory.inboxes[VISION.name].send(pack(Shutdown()))
    assert first.wait(SECONDS) == 0
    second = zygote.start(spec, {"WHO": "second"})
    await_ready(memory)
    about = psutil.Process(second.pid)
    assert (about.name(), about.cwd(), about.environ()["WHO"]) == (f"us:{VISION.name}", str(tmp_path), "second")
    assert not sockets(about.pid) & sockets(about.ppid())
    (record,) = caplog.records
    assert re.search(r"slower than a fork, because thread stranger \(.+, \d+\) runs", record.message)
    parent = about.parent()
    assert parent is not None
    parent.kill()
    assert second.wait(SECONDS) == -signal.SIGKILL
    zygote.close()


def test_a_library_that_puts_a_child_right_is_no_obstacle(
    spec: WorkerSpec, memory: SharedMemory, caplog: pytest.LogCaptureFixture
) -> None:
    zygote = Zygote(("-c", WITH_JEMALLOC))
    worker = zygote.start(spec)
    await_ready(memory)
    parent = psutil.Process(worker.pid).parent()
    assert parent is not None
    assert "jemalloc_bg_thd" in {
        Path(f"/proc/{parent.pid}/task/{t.id}/comm").read_text().strip() for t in parent.threads()
    }
    assert psutil.Process(worker.pid).cmdline() == parent.cmdline()  # forked
    assert caplog.records == []
    zygote.close()


def test_a_gpu_that_an_import_opened_is_an_obstacle() -> None:
    done = subprocess.run([sys.executable, "-c", WITH_A_GPU], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['/dev/nvidiactl is open']"]


@pytest.fixture(scope="module")
def own_workers() -> Iterator[Zygote]:
    zygote = Zygote(("-c", WITH_ITS_OWN_WORKERS))
    yield zygote
    zygote.close()


def test_a_worker_s_environment_is_the_zygote_s_and_what_it_is_given(own_workers: Zygote, spec: WorkerSpec) -> None:
    workers = [own_workers.start(spec, {"CODE": code}) for code in ("7", "8")]
    assert [worker.wait(SECONDS) for worker in workers] == [7, 8]


@pytest.mark.parametrize(
    ("modules", "number"),
    [("transformers.modeling_utils", 1), ("torch._dynamo.convert_frame sympy torch.distributed.tensor accelerate", 0)],
    ids=["what a model needs", "what only others need"],
)
def test_workers_share_what_has_been_imported(
    own_workers: Zygote, spec: WorkerSpec, checkpoint: Path, modules: str, number: int
) -> None:
    of_model = msgspec.structs.replace(spec, model_dir=str(checkpoint))
    assert own_workers.start(of_model, {"MODULES": modules}).wait(SECONDS) == number


def test_a_zygote_that_cannot_start_says_so(spec: WorkerSpec) -> None:
    zygote = Zygote(("-c", "raise SystemExit(3)"))
    with pytest.raises(ZygoteError, match="ended with code 3"):
        zygote.start(spec)
    zygote.close()


@pytest.mark.daemon("its workers die with the zygote")
def test_an_engine_survives_the_death_of_its_zygote(daemon: Daemon) -> None:
    pids = daemon.engine.observation.worker_pids()
    zygote = psutil.Process(pids["vision"]).parent()
    assert zygote is not None
    zygote.kill()
    daemon.wait_healthy(False)
    daemon.wait_healthy()
    assert all(has_ended(pid) for pid in pids.values())
    assert not set(pids.values()) & set(daemon.engine.observation.worker_pids().values())
    completion = daemon.client.completions.create(model=daemon.engine.model_name, prompt="A river", max_tokens=4)
    assert completion.choices[0].text
    daemon.wait_idle()


@pytest.mark.daemon("its zygote is stopped, and then a worker dies")
def test_a_stopped_zygote_hides_no_death_and_is_replaced(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote_module, "_TELLING_SECONDS", 0.5)
    pids = daemon.engine.observation.worker_pids()
    zygote = psutil.Process(pids["vision"]).parent()
    assert zygote is not None
    zygote.suspend()
    os.kill(pids["vision"], signal.SIGKILL)
    daemon.wait_healthy(False)
    daemon.wait_healthy()
    assert not zygote.is_running()
    assert not set(pids.values()) & set(daemon.engine.observation.worker_pids().values())
    daemon.wait_idle()


def test_a_zygote_that_is_stopped_when_it_is_asked_is_ended(spec: WorkerSpec, memory: SharedMemory) -> None:
    zygote = Zygote()
    worker = zygote.start(spec)
    await_ready(memory)
    parent = psutil.Process(worker.pid).parent()
    assert parent is not None
    parent.suspend()
    with pytest.raises(ZygoteError, match="ended with code -9"):
        zygote.start(spec)
    assert worker.wait(SECONDS) == -signal.SIGKILL
    zygote.close()
