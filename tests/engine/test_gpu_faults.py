"""A worker's end on a GPU ends all of them: clients are terminated before they are killed, MPS is begun anew, and no
request is lost. Weights that have been damaged are loaded anew.

The workers compute on the processor, which stands for the GPU; MPS's program is a stand-in.
"""

import os
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from checkpoints import find_checkpoint
from daemon import Daemon, running
from deferred import DeferredDevice

from unifiedserve.config import EngineConfig
from unifiedserve.device.cpu.device import CpuDevice
from unifiedserve.device.cuda import mps_daemon
from unifiedserve.device.cuda.products import check_products
from unifiedserve.device.cuda.sharing import Mps
from unifiedserve.engine import supervisor
from unifiedserve.engine.engine_weights import EngineWeights
from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.memory.weights import load_weights, sum_weights, write_weights
from unifiedserve.worker.damage import DAMAGED_WEIGHTS

PROGRAM = Path(__file__).parents[1] / "fakes" / "mps"
CONFIG = EngineConfig.of(share="mps", dtype="float32", kv_cache_mib=32, vision_threads=1)


@pytest.fixture(scope="module")
def order_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mps") / "orders"


@pytest.fixture
def orders(order_file: Path) -> Callable[[], list[str]]:
    return lambda: order_file.read_text().splitlines()


@pytest.fixture(scope="module")
def shared_by_mps(order_file: Path) -> Iterator[Daemon]:
    """A daemon whose workers are clients of the stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{PROGRAM}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("FAKE_MPS_ORDERS", str(order_file))
        folder = Path(tempfile.mkdtemp(dir="/tmp"))  # short, as sockets' addresses are
        patch.setattr(mps_daemon.tempfile, "tempdir", str(folder))
        for name in ("_START_SECONDS", "_ORDER_SECONDS"):
            patch.setattr(mps_daemon, name, 300.0)  # a busy machine starts the stand-in late
        device = CpuDevice()
        device.sharing = Mps(CONFIG)
        patch.setattr(supervisor, "select_device", lambda config: device)
        with running(CONFIG) as daemon:
            yield daemon
        folder.rmdir()  # nothing is left in it
    assert order_file.read_text().splitlines()[-1].startswith("quit")


def stream(daemon: Daemon, answers: list[str]) -> threading.Thread:
    """Begin to stream a long answer; it is added when it is complete."""

    def read() -> None:
        pieces = daemon.client.chat.completions.create(
            model=daemon.engine.model_name,
            messages=[{"role": "user", "content": "Hello"}],
            temperature=0,
            max_tokens=400,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        answers.append("".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices))

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def pids(daemon: Daemon) -> list[int]:
    return list(daemon.engine.observation.worker_pids().values())


def test_no_request_is_lost(shared_by_mps: Daemon, orders: Callable[[], list[str]]) -> None:
    daemon = shared_by_mps
    expected: list[str] = []
    stream(daemon, expected).join()
    for instance in ("decode", "encode-prefill", "vision"):
        before = daemon.engine.observation.worker_pids()
        told, answers = len(orders()), list[str]()
        reading = stream(daemon, answers)
        daemon.wait_for(lambda: daemon.engine.observation.in_flight == 1)
        os.kill(before[instance], signal.SIGKILL)
        daemon.wait_for(lambda before=before: not set(pids(daemon)) & set(before.values()))
        reading.join()
        assert answers == expected
        daemon.wait_idle()
        asked = [order for order in orders()[told:] if not order.startswith("get")]
        ended = sorted(int(order.split()[2]) for order in asked if order.startswith("terminate_client"))
        assert ended == sorted(pid for name, pid in before.items() if name != instance)
        assert [order.split()[0] for order in asked[len(ended) :]] == ["quit", "started"]


def test_damaged_weights_are_noticed_and_can_be_loaded_anew(tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint, name = find_checkpoint(tmp_path_factory, "qwen2_5_vl"), f"test-weights-{uuid.uuid4().hex[:12]}"
    memory = load_weights(checkpoint, name, torch.float32)
    try:
        whole = sum_weights(name, DeferredDevice())
        for place in (0, 1, 12345):
            byte = memory.read(place, 1)
            memory.write(place, bytes([byte[0] ^ 1]))
            assert sum_weights(name, DeferredDevice()) != whole
        write_weights([memory], SafetensorsFiles(checkpoint))
        assert sum_weights(name, DeferredDevice()) == whole
    finally:
        memory.close()
        memory.unlink()


def without_part_of_sums(result: torch.Tensor, left: torch.Tensor, weight: torch.Tensor) -> None:
    """Leave out a part of long sums, as a kernel would that counts on more multiprocessors."""
    if left.shape[1] > 10_000:
        result -= left[:, -1024:] @ weight[:, -1024:].T


def without_a_tile(result: torch.Tensor, left: torch.Tensor, weight: torch.Tensor) -> None:
    """Leave out a tile of results, as an H100 did with 60 % of its threads, by a product for one token."""
    if left.shape[0] == 1 and weight.shape == (4608, 3584):
        result[:, 1024:1088] = 0


@pytest.mark.parametrize(
    ("spoil", "shapes"),
    [(without_part_of_sums, "1x16384 by 16384x64"), (without_a_tile, "1x3584 by 3584x4608")],
)
def test_products_that_are_wrong_end_the_worker(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None], shapes: str
) -> None:
    check_products(torch.device("cpu"))
    linear = torch.nn.functional.linear

    def spoilt(left: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        result = linear(left, weight)
        spoil(result, left, weight)
        return result

    monkeypatch.setattr(torch.nn.functional, "linear", spoilt)
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "42")
    with pytest.raises(ConfigError, match=rf"multiplies {shapes} wrongly .*42 %.*another --gpu-threads"):
        check_products(torch.device("cpu"))


def test_a_worker_that_finds_them_damaged_has_them_loaded_before_the_next_start(
    shared_by_mps: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, loaded = shared_by_mps, list[EngineWeights]()
    monkeypatch.setattr(EngineWeights, "load_again", lambda weights: loaded.append(weights))
    before = daemon.engine.observation.worker_pids()
    daemon.loop.call_soon_threadsafe(daemon.engine._worker_ended, "decode", DAMAGED_WEIGHTS, 10**6)
    daemon.wait_healthy(False)
    daemon.wait_healthy()
    assert len(loaded) == 1
    assert not set(pids(daemon)) & set(before.values())
    answers: list[str] = []
    stream(daemon, answers).join()
    assert answers
