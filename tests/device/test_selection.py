"""Which device it is, and one line on why not; with stand-ins for what the driver tells."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ipc_buffers import ArenaError
from unifiedserve.config import EngineConfig
from unifiedserve.device import select_device
from unifiedserve.device.cuda import CudaDevice, device, support
from unifiedserve.errors import ConfigError

GPU = {
    "place": "cuda:0",
    "name": "Test GPU",
    "capability": (9, 0),
    "total_bytes": 8 << 30,
    "driver": (13, 0),
    "compute_mode": "default",
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that there is a GPU, Triton, and a torch for CUDA 13, except for what is given."""

    def pretend(built_for: str | None = "13.0", triton: bool = True, gpus: int = 1, **given: Any) -> None:
        found = [SimpleNamespace(**{**GPU, "place": f"cuda:{number}", **given}) for number in range(gpus)]
        monkeypatch.setattr(support, "list_gpus", lambda: found)
        monkeypatch.setattr(device, "free_bytes", lambda place: 1 << 30)
        monkeypatch.setattr(torch.version, "cuda", built_for)
        monkeypatch.setattr(support.importlib.util, "find_spec", lambda name: object() if triton else None)

    return pretend


def chosen(**given: Any) -> str:
    return select_device(EngineConfig.of(**given)).name


def test_a_gpu_that_can_be_used_is_used(gpu: Callable[..., None]) -> None:
    gpu()
    assert chosen() == chosen(device="cuda") == "cuda"
    assert chosen(device="cpu") == "cpu"


def test_the_engine_asks_no_gpu_that_it_does_not_use(gpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    gpu(gpus=2)
    asked: list[str] = []

    def free_bytes(place: str) -> int:
        asked.append(place)
        return 1 << 30

    monkeypatch.setattr(device, "free_bytes", free_bytes)
    select_device(EngineConfig.of(placement="vep@cuda:1+d@cuda:1")).room()
    assert asked == ["cuda:1"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"built_for": None}, "Test GPU is there, but torch .* is built without CUDA"),
        ({"driver": (12, 4)}, r"Test GPU supports CUDA 12\.4, but torch .* is built for 13\.0: update the driver"),
        ({"capability": (7, 0)}, r"Test GPU has compute capability 7\.0; 7\.5 or later is needed"),
        ({"triton": False}, "the package triton is missing"),
        ({"compute_mode": "exclusive process"}, "mode exclusive process, .*: nvidia-smi --compute-mode DEFAULT"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    given: dict[str, Any], words: str, gpu: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    gpu(**given)
    with pytest.raises(ConfigError, match=f"--device cuda: .*{words}"):
        chosen(device="cuda")
    assert chosen() == "cpu"
    assert [record.levelname for record in caplog.records if "computing on the CPU" in record.message] == ["WARNING"]


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise ArenaError("no NVIDIA driver here")

    monkeypatch.setattr(support, "list_gpus", none)
    assert chosen() == "cpu"
    with pytest.raises(ConfigError, match="--device cuda: no NVIDIA driver here"):
        chosen(device="cuda")


@pytest.mark.parametrize("device", ["cpu", "auto"])
@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"gpu_threads": ("decode=50",)}, "--gpu-threads"),
        ({"gpu_memory_limits": ("decode=9000",)}, "--gpu-memory-limits"),
        ({"share": "mps"}, "--share"),
        ({"share": "none", "attention_backend": "triton"}, "--attention-backend, --share"),
        ({"gpu_memory_utilization": 0.5}, "--gpu-memory-utilization"),
    ],
)
def test_options_of_gpus_are_refused_on_a_cpu(
    device: str, given: dict[str, Any], option: str, gpu: Callable[..., None]
) -> None:
    gpu(triton=False)
    with pytest.raises(ConfigError, match=f"^{option}: means nothing on a CPU, which computes here; leave it out"):
        chosen(device=device, **given)
    gpu()
    assert chosen(**given) == "cuda"


def test_a_cpu_is_batch_invariant_anyway(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert chosen(device="cpu", batch_invariant=True) == "cpu"
    assert [record.message for record in caplog.records if "--batch-invariant" in record.message] == [
        "--batch-invariant: the CPU computes here, where answers are the same in any batch without it"
    ]


def test_only_batch_invariant_towers_do_without_flash_attention() -> None:
    for invariant in (True, False):  # one after the other in a process, as where they are compared
        _ = CudaDevice(EngineConfig.of(batch_invariant=invariant)).kernels
        assert torch.backends.cuda.flash_sdp_enabled() is not invariant


def test_flashinfer_is_not_batch_invariant(gpu: Callable[..., None]) -> None:
    gpu()
    CudaDevice(EngineConfig.of(batch_invariant=True)).check("bfloat16")
    with pytest.raises(ConfigError, match=r"^--batch-invariant: FlashInfer splits .* leave out --attention-backend"):
        CudaDevice(EngineConfig.of(batch_invariant=True, attention_backend="flashinfer")).check("bfloat16")


def test_dtypes_of_older_gpus(gpu: Callable[..., None]) -> None:
    gpu(capability=(7, 5))
    turing = CudaDevice(EngineConfig())
    assert turing.best_dtype() == "float32"
    turing.check("float32")
    with pytest.raises(ConfigError, match="bfloat16: Test GPU does not compute with it; use --dtype float32"):
        turing.check("bfloat16")


@pytest.mark.parametrize("placement", ["ep@cuda:0+d@cuda:2", "ep+d@mem2"])
def test_a_gpu_that_is_not_there(placement: str, gpu: Callable[..., None]) -> None:
    gpu(gpus=2)
    with pytest.raises(ConfigError) as refused:
        chosen(device="cuda", placement=placement)
    assert f"--placement {placement} has mem2 on cuda:2, but this process sees 2 GPUs" in str(refused.value)
    gpu(gpus=3)
    assert chosen(device="cuda", placement=placement) == "cuda"


def test_a_rank_without_a_gpu(gpu: Callable[..., None]) -> None:
    gpu(gpus=3)
    with pytest.raises(ConfigError) as refused:
        chosen(device="cuda", tensor_parallel_size=4)
    assert "has mem0 on cuda:0 to cuda:3, but this process sees 3 GPUs" in str(refused.value)
    gpu(gpus=4)
    assert chosen(device="cuda", tensor_parallel_size=4) == "cuda"


def test_sums_over_gpus_are_not_batch_invariant(gpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    gpu(gpus=2)
    monkeypatch.setattr("unifiedserve.device.cuda.device.check_backend", lambda backend, ranks: None)
    CudaDevice(EngineConfig.of(tensor_parallel_size=2)).check("bfloat16")
    with pytest.raises(ConfigError, match=r"^--batch-invariant: NCCL's order of sums over --tensor-parallel-size 2"):
        CudaDevice(EngineConfig.of(tensor_parallel_size=2, batch_invariant=True)).check("bfloat16")


def test_gpus_mean_nothing_on_a_cpu() -> None:
    with pytest.raises(ConfigError, match=r"--placement ep@cuda:0\+d@cuda:1: names GPUs, but the CPU computes here"):
        chosen(device="cpu", placement="ep@cuda:0+d@cuda:1")
    assert chosen(device="cpu", placement="ep+d@mem1") == "cpu"


def test_a_cache_of_codes_is_for_the_processor(gpu: Callable[..., None]) -> None:
    gpu()
    with pytest.raises(ConfigError, match="--kv-cache-dtype int8: only the CPU's kernels"):
        CudaDevice(EngineConfig.of(kv_cache_dtype="int8")).check("bfloat16")
    CudaDevice(EngineConfig()).check("bfloat16")


def test_its_memory(gpu: Callable[..., None]) -> None:
    gpu()
    assert CudaDevice(EngineConfig()).room() == ("Test GPU", 8 << 30, 1 << 30)
    assert CudaDevice(EngineConfig()).best_dtype() == "bfloat16"


def test_flashinfer_that_is_not_installed(gpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    gpu()
    monkeypatch.setattr("unifiedserve.device.cuda.backends.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="--attention-backend flashinfer: FlashInfer is not installed"):
        CudaDevice(EngineConfig.of(attention_backend="flashinfer")).check("bfloat16")
