"""What is told of GPUs without a context, and their free memory: over a stand-in for libcuda, and over a real one."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess

import fake_cuda
import pytest
from memory_process import RefusedError, StartProcess

from ipc_buffers import ArenaError, free_bytes, list_gpus

MIB = 1 << 20
GIB = 1 << 30
NAME = f"test-{os.getpid()}-gpus"


def test_what_is_told_of_a_gpu(start_process: StartProcess) -> None:
    asking = start_process(FAKE_CUDA_MEMORY=str(40 * GIB), FAKE_CUDA_CAPABILITY="12.1", FAKE_CUDA_DRIVER="12080")
    told = {
        "place": "cuda:0",
        "name": "Fake GPU 0",
        "uuid": "GPU-41414141-4141-4141-4141-414141414141",
        "capability": [12, 1],
        "total_bytes": 40 * GIB,
        "multiprocessors": 132,
        "compute_mode": "default",
        "driver": [12, 8],
    }
    assert asking.gpus() == [told]
    assert asking.in_thread("gpus") == [told]
    assert asking.live() == 0, "asking makes no context"


def test_gpus_are_numbered_as_the_process_sees_them(start_process: StartProcess) -> None:
    def seen(order: str) -> list[tuple[str, str, str]]:
        gpus = start_process(FAKE_CUDA_GPUS=order).gpus()
        return [(gpu["place"], gpu["name"], gpu["uuid"][:6]) for gpu in gpus]

    assert seen("AB") == [("cuda:0", "Fake GPU 0", "GPU-41"), ("cuda:1", "Fake GPU 1", "GPU-42")]
    assert seen("BA") == [("cuda:0", "Fake GPU 0", "GPU-42"), ("cuda:1", "Fake GPU 1", "GPU-41")]


@pytest.mark.parametrize("operation", [("gpus",), ("free_bytes", "cuda:0")])
def test_no_gpu(start_process: StartProcess, operation: tuple[str, ...]) -> None:
    none = start_process(FAKE_CUDA_FAULT="no device")
    with pytest.raises(RefusedError, match=r"ArenaError: there is no .*sees 0 GPUs; CUDA_VISIBLE_DEVICES"):
        getattr(none, operation[0])(*operation[1:])
    refused = start_process(FAKE_CUDA_FAULT="cuInit")
    with pytest.raises(RefusedError, match="ArenaError: cuInit: CUDA_ERROR_NO_DEVICE"):
        getattr(refused, operation[0])(*operation[1:])


def test_too_old_a_driver(start_process: StartProcess, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = fake_cuda.build(tmp_path_factory.mktemp("old-cuda"), "-DFAKE_CUDA_IS_OLD")
    old = start_process(LD_LIBRARY_PATH=str(folder))
    with pytest.raises(RefusedError, match=r"ArenaError: the NVIDIA driver is too old: .*CUDA 11\.4 or later"):
        old.gpus()
    with pytest.raises(RefusedError, match="ArenaError: the NVIDIA driver is too old"):
        old.free_bytes("cuda:0")


def test_no_driver() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is an NVIDIA driver here")
    with pytest.raises(ArenaError, match=r"no NVIDIA driver here: libcuda\.so\.1"):
        list_gpus()
    with pytest.raises(ArenaError, match=r"no NVIDIA driver here: libcuda\.so\.1"):
        free_bytes("cuda:0")


def test_what_others_take_is_not_free(start_process: StartProcess) -> None:
    limits = {"FAKE_CUDA_GPUS": "AB", "FAKE_CUDA_MEMORY": str(100 * MIB)}
    asking, other = start_process(**limits), start_process(**limits)
    assert asking.free_bytes("cuda:0") == 100 * MIB
    other.create("m", NAME, 10 * MIB, "cuda:1")
    assert asking.free_bytes("cuda:1") == 90 * MIB
    assert asking.free_bytes("cuda:0") == 100 * MIB
    other.close("m")
    assert asking.free_bytes("cuda:1") == 100 * MIB
    assert asking.live() == 0, "no context stays"
    with pytest.raises(RefusedError, match="ArenaError: there is no cuda:2: this process sees 2 GPUs"):
        asking.free_bytes("cuda:2")


def test_a_context_in_use_stays(start_process: StartProcess) -> None:
    engine = start_process(FAKE_CUDA_MEMORY=str(100 * MIB))
    engine.create("m", NAME, 2 * MIB, "cuda:0")
    held = engine.live()
    assert engine.free_bytes("cuda:0") == 98 * MIB
    assert engine.live() == held
    engine.write("m", 0, b"x".hex())


def test_a_fork_is_told_that_it_cannot_ask(start_process: StartProcess) -> None:
    engine = start_process()
    assert len(engine.in_fork("gpus")) == 1, "before the parent has used CUDA"
    engine.gpus()
    for operation in (("gpus",), ("free_bytes", "cuda:0")):
        with pytest.raises(RefusedError, match=f"ArenaError: .*was forked from process {engine.pid}"):
            engine.in_fork(*operation)


@pytest.mark.parametrize("place", ["", "host", "cpu", "cuda", "cuda:-1"])
def test_only_gpus_are_asked_about(place: str) -> None:
    with pytest.raises(ValueError, match=f"'{place}'"):
        free_bytes(place)


@pytest.mark.gpu
def test_real_gpus_are_as_nvidia_smi_tells() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no nvidia-smi")
    query = ["nvidia-smi", "--query-gpu=uuid,name,compute_cap,memory.total", "--format=csv,noheader,nounits"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    told = {uuid: facts for uuid, *facts in (line.split(", ") for line in lines)}
    for gpu in list_gpus():
        name, capability, mebibytes = told[gpu.uuid]
        assert (gpu.name, "{}.{}".format(*gpu.capability)) == (name, capability)
        assert 0.9 < gpu.total_bytes / MIB / float(mebibytes) <= 1
        assert 0 < free_bytes(gpu.place) < gpu.total_bytes
