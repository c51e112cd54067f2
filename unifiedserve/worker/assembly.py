"""Assemble the lanes of a worker from its specification."""

import logging
from pathlib import Path

import torch

from ipc_buffers import PagePool
from unifiedserve import __version__
from unifiedserve.carriers.base import Carrier
from unifiedserve.carriers.choose import open_carrier
from unifiedserve.carriers.rdma import reads_by_hardware
from unifiedserve.carriers.setting import Setting, Site, this_machine
from unifiedserve.device import CPU, Device, SideQueue
from unifiedserve.device.panels import weight_bits
from unifiedserve.memory.kv_cache import KVCache, kv_layout
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.memory.shared import PoolKey, PoolSize, SharedMemory
from unifiedserve.memory.weights import attach_weights
from unifiedserve.messages.wire import Ready
from unifiedserve.models.adapters import load_adapter
from unifiedserve.models.chat import load_tokenizer
from unifiedserve.placement import Stage, networks_of
from unifiedserve.profiles import steps_of
from unifiedserve.profiles.digest import model_digest
from unifiedserve.ranks.group import Group
from unifiedserve.reading.readers import Reading
from unifiedserve.recording.folder import begin_run
from unifiedserve.recording.log import Log
from unifiedserve.recording.records import Made, MadeVision
from unifiedserve.recording.turn import RecordedTurn, RecordedVisionTurn
from unifiedserve.sampling.grammar import Grammars, tokenizer_json
from unifiedserve.scheduling import budget_of
from unifiedserve.scheduling.profile import known_costs, profiled
from unifiedserve.scheduling.speculation import row_cost
from unifiedserve.scheduling.step_costs import StepCosts
from unifiedserve.worker.damage import DamagedWeightsError
from unifiedserve.worker.lane import Lane
from unifiedserve.worker.language.lane import LanguageLane
from unifiedserve.worker.language.lone_step import measure_lone_step
from unifiedserve.worker.language.model import LanguageModel
from unifiedserve.worker.language.own_decoder import decoder_of, generates
from unifiedserve.worker.language.patch_pages import PatchPages
from unifiedserve.worker.language.rehearsal import step_seconds
from unifiedserve.worker.language.sampler import Sampler
from unifiedserve.worker.language.speculation import Speculation
from unifiedserve.worker.language.stages import LanguageStages
from unifiedserve.worker.port import Port
from unifiedserve.worker.ranked_cache import LeadingCache
from unifiedserve.worker.spec import WorkerSpec
from unifiedserve.worker.vision.lane import VisionLane
from unifiedserve.worker.vision.stage import MediaBuffers, VisionStage
from unifiedserve.worker.weights_sum import sum_of_ranks

_log = logging.getLogger(__name__)


def begin_log(spec: WorkerSpec) -> Log | None:
    """Begin the record of a worker's turns, if one is wanted. Later the worker may open no file."""
    folder = spec.config.scheduling.record
    return begin_run(Path(folder), spec.instance.name) if folder else None


def build_lanes(
    spec: WorkerSpec,
    device: Device,
    memory: SharedMemory,
    port: Port,
    reading: Reading | None = None,
    log: Log | None = None,
    group: Group | None = None,
) -> tuple[list[Lane], Ready]:
    """Return the lanes of the instance on its device, and the news for the engine.

    The engine hears it when they are up. Images are read by `reading`, or where the lane runs. The turns' decisions go
    to the `log`. In a `group` the language model is one rank's part.

    Raises ConfigError if the model or the machine is not what they need, and DamagedWeightsError.
    """
    stages = frozenset(spec.instance.stages)
    lanes: list[Lane] = []
    ready = Ready(spec.instance.name, incarnation=spec.layout.incarnation(spec.instance.name))
    if Stage.VISION in stages:
        lanes.append(_vision_lane(spec, memory, device, port, reading, log))
    if stages - {Stage.VISION}:
        device.verify()
        ready.weights_sum = _check_weights(spec, device, group)
        lane, ready.decode_step = _language_lane(spec, memory, device, port, log, group)
        lanes.append(lane)
    return lanes, ready


def _check_weights(spec: WorkerSpec, device: Device, group: Group | None) -> int | None:
    """Return the sum of the weights in a device's own memory; None if they are in the host's, beyond its faults."""
    if spec.memory.place == CPU.place:
        return None
    found = sum_of_ranks(spec, device, group)
    if spec.weights_sum not in (None, found):
        raise DamagedWeightsError("the weights have been damaged")
    return found


def _vision_lane(
    spec: WorkerSpec, memory: SharedMemory, device: Device, port: Port, reading: Reading | None, log: Log | None
) -> VisionLane:
    config = spec.config
    stage = VisionStage(
        {
            name: _media_buffers(spec, memory, name, device.at(pool.memory.place))
            for name, pool in memory.named("patch").items()
        },
        spec.number,
        config.machine.vision_threads,
        port.outbox.bell.ring,
        config.media.video_decoder,
        config.media.decode_on,
        config.media.max_image_pixels,
        config.media.image_background,
        reading,
        lambda route: spec.placement.memory_of(route.encode[0]),
        (device.frames, *_frames_of_ranks(spec, device)),
    )
    made = MadeVision(config.scheduling.service_order)
    return VisionLane(stage, RecordedVisionTurn(made, log) if log else made.turn(), port)


def _frames_of_ranks(spec: WorkerSpec, device: Device) -> list[str]:
    """Return where frames may come out on the devices of further ranks: their engines decode, too."""
    own = spec.layout.memories[spec.instance.memory].place
    encoders = [memory for memory in spec.layout.memories.values() if memory.patch.pages]
    places = [device.seen_as(place, own) for memory in encoders for place in memory.further_places]
    return [device.at(place).frames for place in places]


def _media_buffers(spec: WorkerSpec, memory: SharedMemory, name: str, device: Device) -> MediaBuffers:
    """Return the buffers for media in the memory of that name, which is the device's."""
    patches, visual = (_pool(spec, memory, (name, pool)) for pool in ("patch", "visual"))
    return MediaBuffers(
        RowBuffer(patches, spec.patch_row_bytes, torch.uint8, device),
        RowBuffer(visual, spec.visual_dim, getattr(torch, spec.dtype), device),
    )


def _pool(spec: WorkerSpec, memory: SharedMemory, key: PoolKey) -> PagePool:
    """Return a pool of a memory. Where that has none, no stage here takes a page, and the pool has a single one."""
    if pool := memory.pools.get(key):
        return pool
    name, kind = key
    size: PoolSize = getattr(spec.layout.memories[name], kind)
    pool = PagePool.create(spec.layout.arena(f"{spec.instance.name}-no-{kind}"), 1, size.page_bytes)
    pool.unlink()  # nobody else needs to find it
    return pool


def _language_lane(
    spec: WorkerSpec, memory: SharedMemory, device: Device, port: Port, log: Log | None, group: Group | None
) -> tuple[LanguageLane, float | None]:
    hosted = frozenset(spec.instance.stages)
    grammars = Grammars(
        lambda: tokenizer_json(load_tokenizer(Path(spec.model_dir))), spec.vocab_size, spec.eos_token_ids
    )
    patches, visual = _media_buffers(spec, memory, spec.instance.memory, device)
    model = _load_model(spec, visual, memory, group)
    sampler = Sampler(grammars, spec.eos_token_ids)
    decoder = decoder_of(spec, model.adapter, model.kv)
    speculation = _speculation(spec.config.scheduling.speculative_tokens, model)
    pages = PatchPages(patches, memory.status, spec.instance.name)
    stages = LanguageStages.build(
        model,
        pages,
        visual,
        sampler,
        spec.instance.name,
        spec.number,
        speculation,
        decoder,
        port.elsewhere,
        memory.sequences.of(spec.instance.name),
    )
    known = spec.decode_step  # it would not be alone now, and there may be no free page
    decode_step = (known or measure_lone_step(model, stages.decode)) if generates(spec, model.adapter) else None
    rests = model.adapter.device.sharing.rests
    budget = budget_of(spec.config, model.kv.pool.num_pages, decode_step or 0.0, rests=rests)
    known_steps = steps_of(spec.profile, torch.get_num_threads()) if spec.profile else None
    steps = known_costs(known_steps) if known_steps else StepCosts()
    if spec.config.scheduling.budgets == "profiled" and hosted & {Stage.ENCODE, Stage.PREFILL}:
        taken = known_steps or step_seconds(model, hosted, spec.medium, spec.patch_row_bytes)
        budget, steps = profiled(budget, taken, decode_step or 0.0)
        _log.info("steps of %d prompt tokens, %d visual tokens", budget.prefill_tokens, budget.encode_tokens)
    made = Made(list(spec.instance.stages), budget, rests, spec.share, steps)
    turn, side = RecordedTurn(made, log) if log else made.turn(), _side_queue(spec, model.adapter.device)
    carrier = carrier_of(spec, memory, port) if port.elsewhere else None
    return LanguageLane(stages, hosted, budget, port, turn, side, carrier), decode_step


def carrier_of(spec: WorkerSpec, memory: SharedMemory, port: Port) -> Carrier:
    """Return what reads pages of other memories, and lets others read those of this one.

    Raises ConfigError if it is not installed or does not work here.
    """
    options = spec.config
    is_whole = spec.placement.is_whole
    model = spec.model_dir if is_whole else model_digest(Path(spec.model_dir))  # directories of other machines differ
    means = f"{model}, {spec.dtype}, {options.memory.kv_dtype(spec.dtype)} keys, version {__version__}"
    rdma = reads_by_hardware()
    sites = [Site(this_machine(), layout.place, rdma) for layout in spec.layout.memories.values()]
    kind = "tcp" if options.machine.carrier == "auto" and not is_whole else options.machine.carrier
    setting = Setting(means, spec.carrier_token, Setting.host if is_whole else options.server.host)
    carrier = open_carrier(kind, setting, port.outbox.bell, sites)
    carrier.register(memory.of(spec.instance.memory))
    return carrier


def _side_queue(spec: WorkerSpec, device: Device) -> SideQueue | None:
    """Return where batches are encoded beside the other steps; None if they take turns with them."""
    options, stages = spec.config.scheduling, set(spec.instance.stages)
    if options.dual_streams == "auto":
        alone = spec.config.machine.encoder_ranks_of(spec.instance).total == 1  # else ranks do one thing at a time
        beside = {Stage.ENCODE, Stage.DECODE} <= stages and alone and not (device.synchronous or options.naive)
    else:
        beside = options.dual_streams == "on" and spec.instance.has_both_models
    return device.side_queue() if beside else None


def _speculation(most: int, model: LanguageModel) -> Speculation:
    """Return a drafter of up to `most` tokens a step, or none.

    There is none where a row's logits may depend on the other rows: then the tokens would not be those of decoding
    without drafts. In the processor's kernels they do not, among so few rows.
    """
    adapter = model.adapter
    known = adapter.device.synchronous and adapter.fused
    return Speculation(most if known else 0, adapter.visual_ids, row_cost(weight_bits(adapter.language_model)))


def _load_model(spec: WorkerSpec, visual: RowBuffer, memory: SharedMemory, group: Group | None) -> LanguageModel:
    """Return the model over the shared KV cache and visual buffer. All ranks of a group have loaded theirs by then."""
    device, model_dir = visual.device, Path(spec.model_dir)
    weights, networks = attach_weights(spec.memory.weights, device), networks_of(spec.instance.stages)
    adapter = load_adapter(model_dir, weights, visual.dtype, device, networks, group)
    layout = kv_layout(spec.config, adapter.config, spec.dtype, device)
    pool = _pool(spec, memory, (spec.instance.memory, "kv"))
    if group:
        group.meet(spec.config.machine.startup_timeout)
    if group and device.apart:
        return LanguageModel(adapter, LeadingCache(group, pool, layout, visual.rows, device))
    return LanguageModel(adapter, KVCache(pool, layout, visual.rows, device))
