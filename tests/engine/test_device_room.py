"""A device with memory of its own: the KV cache takes what everything else leaves, and what does not fit is said."""

import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from checkpoints import find_checkpoint
from deferred import DeferredDevice

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import CPU, Room
from unifiedserve.device.cuda.unseen import decode_bytes
from unifiedserve.engine import rehearsal, supervisor
from unifiedserve.engine.buffer_sizes import plan_layout
from unifiedserve.engine.device_room import RoomError
from unifiedserve.engine.device_sizes import DeviceSizes
from unifiedserve.engine.engine_memory import EngineMemory
from unifiedserve.engine.health import Health
from unifiedserve.engine.known_shares import KnownShares
from unifiedserve.engine.rehearsal import Footprint, rehearse, rehearse_alone
from unifiedserve.engine.supervisor import Supervisor
from unifiedserve.errors import ConfigError
from unifiedserve.memory.shared import EngineLayout, SharedMemory
from unifiedserve.messages.wire import Ready
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import FIRST_MEMORY, MODEL_STAGES, Stage
from unifiedserve.worker.loop import Worker
from unifiedserve.worker.spec import WorkerSpec

DECODE = "scratch of decode"
SMALL = {"patch_buffer_mib": 4, "visual_buffer_mib": 4, "visual_cache_mib": 0}


class Gpu:
    """Memory that is taken and given back."""

    def __init__(self, total_mib: int, others_mib: int = 0) -> None:
        self.total, self.used = total_mib * MIB, others_mib * MIB

    def room(self) -> Room:
        return Room("a GPU", self.total, self.total - self.used)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_checkpoint(tmp_path_factory, "qwen2_5_vl")


@pytest.fixture(scope="module")
def processor(checkpoint: Path) -> Processor:
    return load_processor(checkpoint)


def memory_on(
    gpu: Gpu, checkpoint: Path, processor: Processor, videos_mib: int = 0, placement: str = "shared", **given: int
) -> EngineMemory:
    """Take an engine's memory on a GPU where a worker takes 10 MiB, and one with the language model 30."""
    config = EngineConfig.of(**{**SMALL, **given}, gpu_memory_utilization=0.5, placement=placement)
    footprint = Footprint(10 * MIB, 30 * MIB)
    device = DeferredDevice(gpu.room, videos_mib * MIB)
    return EngineMemory(config, checkpoint, processor, device, lambda memory, dtype, stages: footprint)


def test_the_kv_cache_takes_what_is_left(
    checkpoint: Path, processor: Processor, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of 400 MiB may be used: 20 are by others, 10 by vision, 30 by each of two models, the rest by buffers."""
    caplog.set_level("INFO")
    memory = memory_on(Gpu(400, others_mib=20), checkpoint, processor)
    try:
        layout = memory.shared.layout.only
        left = (200 - 20 - 10 - 2 * 30) * MIB - layout.patch.bytes - layout.visual.bytes - memory.uses[DECODE]
        assert left - layout.kv.page_bytes < memory.uses["KV cache"] <= left
        assert memory.shared.pools[FIRST_MEMORY, "kv"].num_pages == memory.shared.layout.only.kv.pages
        assert f"a GPU: KV cache {memory.uses['KV cache'] // MIB} MiB, " in caplog.text
        assert memory.uses.keys() >= {"weights", "patch buffer", "visual buffer", "vision", "encode-prefill", "decode"}
    finally:
        memory.free()


@pytest.mark.parametrize(("placement", "workers"), [("shared", 10 + 2 * 30), ("monolithic", 10 + 30)])
@pytest.mark.parametrize("max_model_len", [0, 500])
def test_what_no_step_before_requests_shows_is_counted_and_named(
    checkpoint: Path,
    processor: Processor,
    caplog: pytest.LogCaptureFixture,
    placement: str,
    workers: int,
    max_model_len: int,
) -> None:
    """Decode is prepared for contexts that a model, the user or the KV cache allows: the fewest tokens count."""
    caplog.set_level("INFO")
    memory = memory_on(Gpu(800), checkpoint, processor, 55, placement, max_model_len=max_model_len, max_running=5)
    try:
        layout, text = memory.shared.layout.only, processor.config.get_text_config()
        left = (400 - 55 - workers) * MIB - layout.patch.bytes - layout.visual.bytes
        held = left // layout.kv.page_bytes * 16
        tokens = min(max_model_len or text.max_position_embeddings, held)
        assert tokens < held if max_model_len else tokens > 500
        assert memory.uses[DECODE] == decode_bytes(text, 5, tokens, 16) > 0
        assert memory.uses["decoders of videos"] == 55 * MIB
        left -= memory.uses[DECODE]
        assert left - layout.kv.page_bytes < memory.uses["KV cache"] <= left
        assert f", {DECODE} {memory.uses[DECODE] // MIB} MiB, decoders of videos 55 MiB; " in caplog.text
    finally:
        memory.free()


class Gpus(DeferredDevice):
    """GPUs by place, which are asked for their room alone."""

    def __init__(self, gpus: dict[str, Gpu], place: str = "cuda:0", videos_mib: int = 0) -> None:
        super().__init__(gpus[place].room, videos_mib * MIB)
        self._gpus, self._videos_mib = gpus, videos_mib

    def place_of(self, gpu: int) -> str:
        return f"cuda:{gpu}"

    def place_of_rank(self, place: str, rank: int) -> str:
        return f"cuda:{int(place[-1]) + rank}"

    def at(self, place: str) -> DeferredDevice:
        return Gpus(self._gpus, place, self._videos_mib)


def sizes_on(
    gpus: dict[str, Gpu], processor: Processor, placement: str, videos_mib: int = 0, **given: int
) -> tuple[EngineLayout, dict[str, int]]:
    """Divide the memory of GPUs as `memory_on` does, where decode takes 20 MiB and encode 10 more than vision."""
    config = EngineConfig.of(**{**SMALL, **given}, gpu_memory_utilization=0.5, placement=placement)
    device = Gpus(gpus, videos_mib=videos_mib)
    layout = plan_layout(config, config.machine.workers, processor, "float32", "none", "weights", device)
    sizes = DeviceSizes(config, processor, device)
    sizes.check(layout, {memory: [MIB] for memory in layout.memories})
    busy = {Stage.ENCODE: 20, Stage.PREFILL: 30, Stage.DECODE: 20}
    footprints = {
        memory: Footprint(10 * MIB, max(busy.get(stage, 0) for stage in config.machine.workers.hosted_in(memory)) * MIB)
        for memory, own in layout.memories.items()
        if own.weights
    }
    return sizes.sized(layout, footprints)


def test_each_gpu_has_what_its_memory_leaves(processor: Processor) -> None:
    """Vision and prefill open the memory of the other GPU, too: each takes a context there, and vision decoders."""
    gpus = {"cuda:0": Gpu(400), "cuda:1": Gpu(600, others_mib=30), "cuda:2": Gpu(100)}
    layout, workers = sizes_on(gpus, processor, "ve@cuda:0+p@cuda:1+d@cuda:2", 7)
    assert layout.memories["mem0"].kv.pages == 0
    left = (300 - 30 - 30 - 10) * MIB - layout.memories["mem1"].visual.bytes  # of the others, prefill, decode's context
    assert left - layout.memories["mem1"].kv.page_bytes < layout.memories["mem1"].kv.bytes <= left
    left = (50 - 20) * MIB - workers[DECODE]
    assert left - layout.memories["mem2"].kv.page_bytes < layout.memories["mem2"].kv.bytes <= left
    assert workers["workers of other GPUs"] == 2 * 10 * MIB  # prefill reads of encode's, and decode of prefill's
    assert workers["decoders of videos"] == 7 * MIB


def test_the_gpu_of_a_rank_with_the_least_room_decides(processor: Processor) -> None:
    def kv_bytes(*others_mib: int) -> int:
        gpus = {f"cuda:{number}": Gpu(400, others_mib=each) for number, each in enumerate(others_mib)}
        return sizes_on(gpus, processor, "shared", tensor_parallel_size=2)[0].kv_bytes

    free, left = kv_bytes(0, 0), kv_bytes(0, 60)
    assert left == pytest.approx(free - 60 * MIB, abs=2 * MIB)
    assert kv_bytes(60, 0) == left


def test_memories_of_one_gpu_share_what_is_left(processor: Processor) -> None:
    layout, workers = sizes_on({"cuda:0": Gpu(400)}, processor, "ep@mem0,cuda:0+d@mem1,cuda:0")
    first, second = layout.memories["mem0"], layout.memories["mem1"]
    assert first.kv == second.kv
    left = (200 - 10 - 30 - 20) * MIB - first.patch.bytes - first.visual.bytes - workers[DECODE]
    assert left - 2 * first.kv.page_bytes < 2 * first.kv.bytes <= left


def test_the_weights_of_each_memory_have_a_sum() -> None:
    health = Health(EngineConfig.of(placement="ep+2d@mem1"))
    for worker, found in ("encode-prefill", 3), ("decode-1", 5), ("decode-2", 6), ("vision", None):
        health.worker_ready(Ready(worker, weights_sum=found))
    assert health.learned.weights_sums == {"mem0": 3, "mem1": 5}


@pytest.mark.parametrize(
    ("gpus", "placement", "given", "words"),
    [
        ({"cuda:0": Gpu(400), "cuda:1": Gpu(40)}, "ep+d@mem1", {}, r"a GPU \(cuda:1, with mem1\) has too .* decode 20"),
        (
            {"cuda:0": Gpu(400)},
            "ep@mem0,cuda:0+d@mem1,cuda:0",
            {"kv_cache_mib": 100},
            r"a GPU \(cuda:0, with mem0 and mem1\) has too little memory: weights 2 \+ KV cache 200 \+",
        ),
        ({"cuda:0": Gpu(2), "cuda:1": Gpu(400)}, "ep+d@mem1", {}, r"\(cuda:0, with mem0\).* of its 2 MiB 2 are free"),
    ],
)
def test_a_gpu_that_has_too_little_is_named(
    gpus: dict[str, Gpu], placement: str, given: dict[str, int], words: str, processor: Processor
) -> None:
    with pytest.raises(RoomError, match=words) as caught:
        sizes_on(gpus, processor, placement, **given)
    assert "\n" not in str(caught.value)


def test_a_size_that_is_given_is_kept(checkpoint: Path, processor: Processor) -> None:
    memory = memory_on(Gpu(400), checkpoint, processor, kv_cache_mib=16)
    try:
        assert memory.uses["KV cache"] <= 16 * MIB
    finally:
        memory.free()


def test_pages_stay_when_pools_are_renewed(checkpoint: Path, processor: Processor) -> None:
    memory = memory_on(Gpu(400), checkpoint, processor, kv_cache_mib=16)
    try:
        memory.shared.pools[FIRST_MEMORY, "kv"].allocate(3, 7)
        memory.shared.pools[FIRST_MEMORY, "kv"].memory.write(5, b"kept")
        memory.renew()
        assert memory.shared.pools[FIRST_MEMORY, "kv"].used_pages() == 0
        assert memory.shared.pools[FIRST_MEMORY, "kv"].memory.read(5, 4) == b"kept"
    finally:
        memory.free()


@pytest.mark.parametrize(
    ("gpu", "given", "words"),
    [
        (Gpu(10), {}, r"a GPU has too little memory: weights \d+ .* of its 10 MiB 10 are free"),
        (
            Gpu(400, others_mib=390),
            {},
            r"of its 400 MiB 10 are free, .* 0.5 leaves 0; a model of up to 0 MiB would fit",
        ),
        (Gpu(60), {}, r"vision 10 \+ encode-prefill 30 \+ decode 30"),
        (Gpu(400), {"videos_mib": 150}, r"decode 30 \+ decoders of videos 150 ="),
        (Gpu(400), {"kv_cache_mib": 100, "max_running": 5000}, rf"decode 30 \+ {DECODE} \d+ ="),
        (Gpu(400), {"kv_cache_mib": 300}, r"KV cache 300 .* ask for smaller buffers"),
        (Gpu(200), {"max_model_len": 1_000_000}, r"--max-model-len 1000000: .* holds [\d,]+ tokens; ask for that"),
    ],
)
def test_what_does_not_fit_is_one_line(
    gpu: Gpu, given: dict[str, int], words: str, checkpoint: Path, processor: Processor
) -> None:
    with pytest.raises(RoomError, match=words) as caught:
        memory_on(gpu, checkpoint, processor, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_auto_goes_on_with_the_cpu(
    device: str,
    checkpoint: Path,
    processor: Processor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(supervisor, "select_device", lambda config: DeferredDevice(Gpu(10).room))
    config = EngineConfig.of(device=device, **SMALL)
    if device == "cuda":
        with pytest.raises(ConfigError, match="too little memory"):
            Supervisor(config, checkpoint, processor)
        return
    engine = Supervisor(config, checkpoint, processor)
    engine.stop()
    assert "computing on the CPU: a GPU has too little memory" in caplog.text


class WorkerHere:
    """A worker in a thread of this process, in place of one that the zygote forks."""

    def __init__(self, spec: WorkerSpec, device: DeferredDevice) -> None:
        self.code: int | None = None
        self._spec, self._device = spec, device
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            worker = Worker(self._spec, self._device)
            worker.run()
            worker.close()
            self.code = 0
        except BaseException:
            self.code = 1
            raise

    def wait(self, timeout: float | None = None) -> int | None:
        self._thread.join(timeout)
        return self.code

    def kill(self) -> None:
        pass


@pytest.fixture
def try_out(
    checkpoint: Path, processor: Processor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Footprint]]:
    """Return what a worker took that really did its largest step: 50 MiB when it came up, 20 more in the step."""
    gpu = Gpu(400)

    def first(spec: WorkerSpec, environment: dict[str, str]) -> WorkerHere:
        gpu.used = 50 * MIB
        return WorkerHere(spec, DeferredDevice(after_step))

    def after_step() -> Room:
        gpu.used = 70 * MIB
        return gpu.room()

    monkeypatch.setattr(rehearsal, "shared_zygote", lambda: type("Zygote", (), {"start": staticmethod(first)}))
    config = EngineConfig.of(**SMALL, prefill_chunk_tokens=32, max_running=3, encode_budget_tokens=16)
    memory = memory_on(Gpu(400), checkpoint, processor)

    def tried(own: SharedMemory, stages: Collection[Stage]) -> Footprint:
        spec = WorkerSpec(
            config=config,
            placement=rehearsal.PLACEMENT,
            instance=rehearsal.instance_of(stages),
            number=1,
            layout=own.layout,
            device="cuda",
            model_dir=str(checkpoint),
            dtype="float32",
            patch_row_bytes=processor.patch_row_bytes,
            visual_dim=processor.visual_dim,
            vocab_size=processor.vocab_size,
            eos_token_ids=processor.eos_token_ids,
        )
        return rehearse(spec, own, DeferredDevice(gpu.room), processor, KnownShares(tmp_path / "cache" / "shares.json"))

    try:
        layout = memory.shared.layout
        yield lambda *stages: rehearse_alone(layout, layout.only, lambda own: tried(own, stages or MODEL_STAGES))
    finally:
        memory.free()


@pytest.mark.parametrize("stages", [(), (Stage.ENCODE,), (Stage.PREFILL,), (Stage.DECODE,)])
def test_a_worker_does_its_largest_step(try_out: Callable[..., Footprint], stages: tuple[Stage, ...]) -> None:
    footprint = try_out(*stages)
    assert footprint[:2] == Footprint(50 * MIB, 70 * MIB)[:2]
    assert 0 < footprint.share <= 1.0


def test_a_share_is_tried_out_once_for_a_model_and_a_device(
    try_out: Callable[..., Footprint], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []

    def search(seconds: Callable[[float], float], target: float) -> float:
        tried.append(target)
        return 0.25

    monkeypatch.setattr("unifiedserve.worker.language.rehearsal.largest_share", search)
    assert [try_out().share, try_out().share, len(tried)] == [0.25, 0.25, 1]


@pytest.mark.parametrize("contents", [b"", b"{", b'{"key": "much"}', b"[1]", b'{"key": 7.5}', b'{"key": 0}'])
def test_what_is_wrong_with_the_file_of_shares_is_as_if_it_were_not_there(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "shares.json"
    path.write_bytes(contents)
    shares = KnownShares(path)
    assert shares.find("key") is None
    shares.keep("key", 0.5)
    assert shares.find("key") == 0.5
    assert [left.name for left in tmp_path.iterdir()] == ["shares.json"]


def test_a_file_of_shares_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shares = KnownShares(tmp_path / "file" / "shares.json")
    shares.keep("key", 0.5)
    assert shares.find("key") is None


def test_the_cpu_has_no_room_of_its_own() -> None:
    assert CPU.room() is None
