"""The probes of the GPU against fake libraries whose answers are known, and against faults of theirs."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from unifiedserve.doctor import cuda_driver, cuda_ipc, gpu, libraries, mps, nvdec
from unifiedserve.doctor.check import Check, Status
from unifiedserve.doctor.isolation import ProbeError, call


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_layout_and_constants_equal_the_c_header(compile_c: Callable[..., Path], tmp_path: Path) -> None:
    program = compile_c("layout.c", tmp_path / "layout")
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    facts = {key: int(value) for key, value in (line.rsplit(maxsplit=1) for line in lines)}
    ours = {"sizeof": ctypes.sizeof(nvdec.DecodeCaps)}
    ours |= {name: getattr(nvdec.DecodeCaps, name).offset for name, _ in nvdec.DecodeCaps._fields_}
    ours |= {f"codec {name}": number for name, number in nvdec.CODECS.items()}
    ours |= {f"chroma {name}": number for name, number in nvdec.CHROMAS.items()}
    ours |= {f"attribute {name}": number for name, number in cuda_driver.ATTRIBUTES.items()}
    assert ours == facts


def test_ipc_handle_has_the_documented_size() -> None:
    assert ctypes.sizeof(cuda_driver.IpcHandle) == 64


def test_devices(fake_gpu: Path) -> None:
    checks = by_name(gpu.probe())
    assert "CUDA 13.2" in checks["GPU driver"].value
    assert checks["GPU 0"].value == "Fake GPU 0, 80.0 GiB, 132 multiprocessors, compute capability 9.0"


def test_decoder_caps(fake_gpu: Path) -> None:
    checks = by_name(nvdec.probe())
    assert checks["NVDEC on GPU 0"].details["engines"] == 7
    assert len(checks["NVDEC on GPU 0"].details["caps"]) == 4 * 2 * 2
    assert checks["NVDEC h264"].value == "8-bit 4:2:0 to 4096×4096"
    assert checks["NVDEC vp9"].value == "8-bit 4:2:0 to 8192×8192, 10-bit 4:2:0 to 8192×8192"
    assert "10-bit 4:4:4" in checks["NVDEC hevc"].value
    assert checks["NVDEC av1"].value == "not in hardware"


def test_decoder_caps_keep_the_error_of_an_unknown_codec(fake_gpu: Path) -> None:
    (caps,) = call("nvdec:decoder_caps")
    assert {cap["error"] for cap in caps if cap["codec"] == "av1"} == {801}
    assert {cap["error"] for cap in caps if cap["codec"] != "av1"} == {0}


def test_libraries_are_found_where_the_loader_looks(fake_gpu: Path, fake_libraries: Path) -> None:
    checks = by_name(libraries.probe())
    assert checks["libcuda"].value == str(fake_libraries / "libcuda.so.1")
    assert checks["libnvcuvid"].status is Status.OK
    assert checks["libnvidia-encode"].status is Status.MISSING
    assert "video" in checks["libnvidia-encode"].remedy


def test_library_in_a_pip_package(fake_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    library = folder / "libnvjpeg.so.12"
    library.write_bytes((fake_libraries / "libnvcuvid.so.1").read_bytes())
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert libraries.library("libnvjpeg").value == str(library)


def test_memory_is_shared_between_two_processes(fake_gpu: Path) -> None:
    (check,) = cuda_ipc.probe()
    assert check.status is Status.OK
    assert check.details["open_ms"] > 0
    assert not list(fake_gpu.glob("memory-*"))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle_v2: CUDA_ERROR_NOT_SUPPORTED"),
        ("private copy", "the other process's writes are not visible"),
        ("crash", "killed by SIGABRT"),
    ],
)
def test_ipc_failure_says_why(fake_gpu: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAULT", fault)
    (check,) = cuda_ipc.probe()
    assert check.status is Status.WARN
    assert reason in check.value


def test_mps_serves_two_clients_and_is_ended(fake_gpu: Path) -> None:
    (check,) = mps.probe()
    assert check.status is Status.OK, check.value
    assert len(set(check.details["clients"])) == 2
    orders = (fake_gpu / "orders").read_text().splitlines()
    assert orders[0] == "-d"
    assert orders[-1].startswith("quit")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("register", "the daemon's servers ['4242'] know []"),
        ("cuMemsetD32_v2", "cuMemsetD32_v2: CUDA_ERROR_NOT_SUPPORTED"),
        ("crash", "SIGABRT"),
    ],
)
def test_mps_failure_says_why_and_the_daemon_is_ended(
    fake_gpu: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAULT", fault)
    (check,) = mps.probe()
    assert check.status is Status.WARN
    assert reason in check.value
    assert (fake_gpu / "orders").read_text().splitlines()[-1].startswith("quit")


def test_an_mps_daemon_that_ignores_its_orders_is_killed(fake_gpu: Path) -> None:
    pipes = fake_gpu / "pipe"
    pipes.mkdir()
    with subprocess.Popen([mps.CONTROL, "600"], executable="/bin/sleep") as daemon:
        (pipes / f"{mps.CONTROL}.pid").write_text(str(daemon.pid))
        mps.stop({"CUDA_MPS_PIPE_DIRECTORY": str(pipes)})
        assert daemon.wait() == -9


def test_driver_without_a_device(fake_gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAULT", "cuInit")
    (check,) = gpu.probe()
    assert check.status is Status.WARN
    assert "CUDA_ERROR_NO_DEVICE" in check.value
    assert not gpu.has_device()


def test_a_driver_that_hangs_is_given_up(fake_gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAULT", "hang")
    with pytest.raises(ProbeError, match=r"no answer within 0\.5 s"):
        call("gpu:devices", timeout=0.5)


@pytest.mark.gpu
def test_real_gpu() -> None:
    checks = by_name([*gpu.probe(), *nvdec.probe(), *cuda_ipc.probe()])
    assert checks["GPU 0"].status is Status.OK
    assert checks["NVDEC on GPU 0"].details["engines"] > 0
    assert "4:2:0" in checks["NVDEC h264"].value
    assert checks["CUDA IPC"].status is Status.OK
