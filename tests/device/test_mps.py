"""An engine's own MPS daemon: begun, asked, ended, and gone whatever happens; a stand-in takes the program's place."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fake_cuda
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.config import EngineConfig
from unifiedserve.device.cuda import mps_daemon
from unifiedserve.device.cuda import sharing as sharing_module
from unifiedserve.device.cuda.mps_daemon import PIPES, PREFIX, VISIBLE, MpsDaemon, MpsError
from unifiedserve.device.cuda.sharing import MEMORY, NO_PIPES, PRIORITY, THREADS, Mps, TimeSlices, own_first, seen_as
from unifiedserve.device.cuda.support import number_of
from unifiedserve.errors import ConfigError
from unifiedserve.placement import read_placement

PROGRAM = Path(__file__).parents[1] / "fakes" / "mps"
BOUNDS = ("_START_SECONDS", "_ORDER_SECONDS")
VISION, ENCODE_PREFILL, DECODE = read_placement("shared", ()).instances
#: an engine that is about to be killed
OWNER = """
import time
from unifiedserve.device.cuda.mps_daemon import MpsDaemon
daemon = MpsDaemon()
daemon.start()
print(daemon.environment["CUDA_MPS_PIPE_DIRECTORY"], flush=True)
time.sleep(600)
"""
#: engines, one for each value of CUDA_VISIBLE_DEVICES, and workers of each one whose memories are on its first and last
#: GPU, clients of its daemon or not, who say which GPUs they see
ENGINES_AND_CLIENTS = """
import os, subprocess, sys
from ipc_buffers import list_gpus
from unifiedserve.config import EngineConfig
from unifiedserve.placement import read_placement
from unifiedserve.device.cuda.sharing import Mps, TimeSlices, stay_outside
SEES = "from ipc_buffers import list_gpus; print(*[gpu.uuid for gpu in list_gpus()], flush=True)"

def engine():
    stay_outside()
    exec(SEES)
    gpus = list_gpus()
    for sharing in Mps(EngineConfig.of(share="mps")), TimeSlices():
        sharing.start()
        for place in gpus[0].place, gpus[-1].place:
            client = os.environ | sharing.environment(read_placement("shared", ()).instances[0], place)
            subprocess.run([sys.executable, "-c", SEES], env=client, check=True)
        sharing.stop()

for visible in sys.argv[1:]:
    if not os.fork():  # what was imported is there already
        if visible:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
        engine()
        os._exit(0)
    assert os.wait()[1] == 0
"""
UUID_A, UUID_B = (f"GPU-{2 * byte}{2 * byte}-{2 * byte}-{2 * byte}-{2 * byte}-{6 * byte}" for byte in ("41", "42"))


@pytest.fixture(scope="module")
def fake_libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cuda.build(tmp_path_factory.mktemp("fake-cuda"))


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """Let the stand-in be found, and return what tells its orders; nothing of it may be left."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # short, as sockets' addresses are
    monkeypatch.setenv("PATH", f"{PROGRAM}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_MPS_ORDERS", str(tmp_path / "orders"))
    monkeypatch.setattr(mps_daemon.tempfile, "tempdir", str(folder))
    for name in BOUNDS:  # which hold for what hangs, not for what a busy machine starts late
        monkeypatch.setattr(mps_daemon, name, 300.0)
    (tmp_path / "orders").touch()
    yield lambda: (tmp_path / "orders").read_text().splitlines()
    assert not list(folder.iterdir())
    _, alive = psutil.wait_procs(processes(str(folder)), timeout=60)  # those that were killed
    assert not alive
    folder.rmdir()


def processes(folder: str) -> list[psutil.Process]:
    """Return the processes of MPS whose pipes are below a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(PIPES, "").startswith(folder) and "mps" in process.name():
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_it_answers_when_it_is_started_and_is_gone_when_it_is_stopped(orders: Callable[[], list[str]]) -> None:
    daemon = MpsDaemon()
    assert daemon.environment == {}
    daemon.start()
    pipes = Path(daemon.environment[PIPES])
    assert daemon.running
    assert pipes.stat().st_mode & 0o777 == 0o755
    assert pipes.parent.stat().st_mode & 0o777 == 0o700  # nobody else gets in
    server = next(process for process in processes(str(pipes)) if "server" in process.name() or process.ppid() != 1)
    daemon.terminate([11, 12])
    daemon.stop()
    daemon.stop()
    assert not daemon.running
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    began, _, servers, *others = orders()
    assert (began, servers) == ("started", "get_server_list")
    assert [order.split()[0::2] for order in others[:2]] == [["terminate_client", "11"], ["terminate_client", "12"]]
    assert others[2].startswith("quit")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refuses", "nvidia-cuda-mps-control ended with code 1: An instance of this daemon is already running"),
        ("hangs", "nvidia-cuda-mps-control does not answer: no answer to 'get_default_active_thread_percentage'"),
    ],
)
def test_one_that_cannot_be_says_why_in_a_line(
    fault: str, words: str, orders: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MPS_FAULT", fault)
    if fault == "hangs":
        for name in (*BOUNDS, "_STOP_SECONDS"):
            monkeypatch.setattr(mps_daemon, name, 0.5)
    with pytest.raises(MpsError, match=words) as error:
        MpsDaemon().start()
    assert "\n" not in str(error.value)


def test_without_the_program(orders: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_daemon, "find_program", lambda name: None)
    with pytest.raises(MpsError, match=r"there is no nvidia-cuda-mps-control: .*NVIDIA_DRIVER_CAPABILITIES=compute"):
        MpsDaemon().start()


def test_a_program_that_cannot_be_run(
    orders: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/nonexistent\n")
    program.chmod(0o755)
    monkeypatch.setattr(mps_daemon, "find_program", lambda name: str(program))
    with pytest.raises(MpsError, match="program cannot be started: No such file"):
        MpsDaemon().start()


def test_one_that_ignores_its_orders_is_killed_with_its_server(
    orders: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MPS_FAULT", "ignores")
    monkeypatch.setattr(mps_daemon, "_STOP_SECONDS", 0.2)
    daemon = MpsDaemon()
    daemon.start()
    daemon.stop()
    assert orders()[-1].startswith("quit")


def test_one_that_has_died_keeps_nobody(orders: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MPS_FAULT", "dies")
    daemon = MpsDaemon()
    daemon.start()
    daemon.terminate([1])  # it dies of that
    daemon.terminate([1])
    assert not daemon.running
    daemon.stop()


def test_what_a_killed_engine_leaves_is_ended_by_the_next(orders: Callable[[], list[str]]) -> None:
    environment = os.environ | {"TMPDIR": str(mps_daemon.tempfile.tempdir)}
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        other = MpsDaemon()
        other.start()
        assert left.is_dir()  # its owner lives
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert processes(str(left))
    daemon = MpsDaemon()
    daemon.start()
    assert not left.exists()
    assert not processes(str(left))
    assert other.running
    for running in (daemon, other):
        running.stop()


def test_where_names_of_folders_are_too_long_for_sockets_it_is_below_tmp(
    orders: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(mps_daemon.tempfile, "tempdir", str(long))
    daemon = MpsDaemon()
    daemon.start()
    assert Path(daemon.environment[PIPES]).parents[1] == Path("/tmp")
    daemon.stop()


def test_a_folder_without_an_owner_is_removed(orders: Callable[[], list[str]]) -> None:
    left = Path(tempfile.gettempdir(), f"{PREFIX}abc")
    left.mkdir()
    mps_daemon.end_leftovers()
    assert not left.exists()


def test_workers_are_clients_by_what_the_placement_and_the_user_say(
    orders: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing_module, "visible_uuids", lambda: [UUID_A, UUID_B, UUID_A])
    sharing = Mps(EngineConfig.of(gpu_threads=("encode-prefill=60",), gpu_memory_limits=("decode=9000",)))
    sharing.start()
    first = sharing.environment(DECODE, "cuda:0")
    assert (first[PRIORITY], first.get(THREADS)) == ("0", None)
    assert sharing.environment(ENCODE_PREFILL, "cuda:0")[PRIORITY] == "1"
    assert sharing.environment(ENCODE_PREFILL, "cuda:0")[THREADS] == "60"
    assert first[MEMORY] == "0=9000M"
    assert sharing.environment(DECODE, "cuda:2")[MEMORY] == "0=9000M,2=9000M"
    assert MEMORY not in sharing.environment(ENCODE_PREFILL, "cuda:0")
    assert sharing.environment(VISION, "cuda:0")[PIPES] == first[PIPES]
    sharing.terminate([5])
    assert orders()[-1].endswith(" 5")
    sharing.start()  # anew
    assert sharing.environment(DECODE, "cuda:0")[PIPES] != first[PIPES]
    sharing.stop()
    sharing.stop()
    assert sharing.environment(DECODE, "cuda:0") == {PIPES: NO_PIPES}


def test_without_mps_workers_take_turns_and_the_log_says_so_once(
    orders: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FAKE_MPS_FAULT", "refuses")
    sharing = Mps(EngineConfig())
    sharing.start()
    assert sharing.environment(DECODE, "cuda:0") == TimeSlices().environment(DECODE, "cuda:0") == {PIPES: NO_PIPES}
    (record,) = caplog.records
    assert "workers take turns on the GPU, as MPS cannot be used" in record.message
    with pytest.raises(ConfigError, match=r"--share mps: .*ended with code 1"):
        Mps(EngineConfig.of(share="mps")).start()


def test_workers_see_their_own_gpu_first_and_the_others_in_the_order_of_the_engine(
    orders: Callable[[], list[str]], fake_libcuda: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cuda.use(fake_libcuda, tmp_path, monkeypatch)
    monkeypatch.setenv("FAKE_CUDA_GPUS", "AB")
    monkeypatch.setenv("TMPDIR", str(mps_daemon.tempfile.tempdir))
    seen = {"": [UUID_A, UUID_B], "1": [UUID_B], "1,0": [UUID_B, UUID_A], UUID_B[:8]: [UUID_B]}
    command = [sys.executable, "-c", ENGINES_AND_CLIENTS, *seen]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    engines_and_clients = [line.split() for line in done.stdout.splitlines()]
    expected = [[uuids, uuids, uuids[::-1], uuids, uuids[::-1]] for uuids in seen.values()]
    assert engines_and_clients == [uuids for engine in expected for uuids in engine]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gpu_threads": ("decode=0",)}, "--gpu-threads decode=0: expected NAME=N, with a percentage from 1 to 100"),
        ({"gpu_threads": ("decode",)}, "--gpu-threads decode: expected NAME=N"),
        (
            {"gpu_threads": ("language=50",)},
            "there is no worker 'language'; the workers are vision, encode-prefill, decode",
        ),
        ({"gpu_threads": ("decode=50",), "share": "none"}, "--gpu-threads needs --share mps"),
        (
            {"gpu_memory_limits": ("vision=0",)},
            "--gpu-memory-limits vision=0: expected NAME=N, with a number of MiB from 1 to",
        ),
        ({"gpu_memory_limits": ("vision=5",), "share": "none"}, "--gpu-memory-limits needs --share mps"),
    ],
)
def test_limits_that_cannot_be(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EngineConfig.of(**given).check()  # type: ignore[arg-type]


@given(st.data())
def test_a_worker_knows_other_gpus_by_its_own_order(data: st.DataObject) -> None:
    names = [f"GPU-{number}" for number in range(data.draw(st.integers(1, 9)))]
    own, other = (data.draw(st.integers(0, len(names) - 1)) for _ in range(2))
    order = own_first(f"cuda:{own}", lambda: names).get(VISIBLE, ",".join(names)).split(",")
    assert order[number_of(seen_as(f"cuda:{other}", f"cuda:{own}"))] == names[other]
