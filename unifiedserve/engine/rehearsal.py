"""Measure a worker's part of a device's memory: it does its largest step before the buffers are made."""

import time
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeVar

import msgspec

from unifiedserve.device import Device
from unifiedserve.engine.environments import with_environments
from unifiedserve.engine.known_shares import KnownShares, key_of
from unifiedserve.engine.zygote import WorkerProcess, ZygoteError, shared_zygote
from unifiedserve.errors import ConfigError
from unifiedserve.memory.shared import (
    ENGINE_INBOX,
    EngineLayout,
    MemoryLayout,
    PoolSize,
    SharedMemory,
    create_pages,
    free,
)
from unifiedserve.messages.media import MediaOptions, MediaPlan, PromptError
from unifiedserve.messages.wire import Message, Ready, Rehearse, Rehearsed, Shutdown, Unfit, pack, unpack
from unifiedserve.models.processor import Processor
from unifiedserve.placement import FIRST_MEMORY, MODEL_STAGES, Instance, Stage, read_placement
from unifiedserve.worker.spec import WorkerSpec

PLACEMENT = read_placement("monolithic", ())  # its language worker does what those of any other do
_, INSTANCE = PLACEMENT.instances
_LARGE_IMAGE = 2048  # pixels of a side: the model's own rules bound what is made of it
_SMALL_IMAGE = 112  # pixels of a side
_POLL_SECONDS = 0.2


M = TypeVar("M", bound=Message)


class Footprint(NamedTuple):
    """Count a worker's bytes of a device's own memory beside what is shared.

    Heavy work begins with this share of its budgets beside streams.
    """

    idle: int
    busy: int  # of one that runs the language model, at most
    share: float = 1.0


def rehearse_alone(
    layout: EngineLayout, memory: MemoryLayout, rehearse: Callable[[SharedMemory], Footprint]
) -> Footprint:
    """Let `rehearse` have the smallest buffers for a worker of this layout, and free them."""
    small = msgspec.structs.replace(
        memory,
        kv=PoolSize(layout.state_pages + 1, memory.kv.page_bytes),
        patch=PoolSize(1, memory.patch.page_bytes),
        visual=PoolSize(1, memory.visual.page_bytes),
    )
    own = msgspec.structs.replace(
        layout,
        engine_id=layout.arena("rehearsal"),
        memories={FIRST_MEMORY: small},
        instances=tuple(instance.name for instance in PLACEMENT.instances),
    )
    pages = create_pages(own, own.engine_id)
    try:
        shared = SharedMemory.create(own, pages)
        try:
            return rehearse(shared)
        finally:
            shared.unlink()
    finally:
        free(pages.values())


def instance_of(stages: Collection[Stage]) -> Instance:
    """Return a worker that does the largest step of these stages, but for vision."""
    return msgspec.structs.replace(INSTANCE, stages=tuple(stage for stage in MODEL_STAGES if stage in stages))


def rehearse(
    spec: WorkerSpec, memory: SharedMemory, device: Device, processor: Processor, known: KnownShares
) -> Footprint:
    """Start a worker over `memory`, let it do the largest step, and end it. The buffers are for this alone.

    The `device` is that of its memory.

    Raises ConfigError if it cannot, or takes longer than a start may.
    """
    end = time.monotonic() + spec.config.machine.startup_timeout
    room = device.room()
    key = key_of(spec, room.name if room else device.name)
    share = known.find(key)
    before = _free(device)
    try:
        process = shared_zygote().start(*with_environments(spec, device.sharing.environment))
    except ZygoteError as error:
        raise ConfigError(str(error)) from error
    try:
        _await(Ready, memory, process, end)
        ready = _free(device)
        inbox = memory.inboxes[spec.instance.name]
        inbox.send(pack(Rehearse(_image(processor, _LARGE_IMAGE), processor.patch_row_bytes, share)))
        done = _await(Rehearsed, memory, process, end)
        if share is None:
            known.keep(key, done.share)
        inbox.send(pack(Shutdown()))
        process.wait(end - time.monotonic())
    finally:
        process.kill()
        process.wait()
    return Footprint(max(0, before - ready), max(0, before - done.free), done.share)


def _await(kind: type[M], memory: SharedMemory, process: WorkerProcess, end: float) -> M:
    while time.monotonic() < end:
        for data in memory.inboxes[ENGINE_INBOX].receive_many(16, timeout=_POLL_SECONDS):
            message = unpack(data)
            if isinstance(message, kind):
                return message
            if isinstance(message, Unfit):
                raise ConfigError(message.reason)
        if (code := process.wait(0)) is not None:
            raise ConfigError(f"a worker that tried the largest step ended with code {code}; its log is above")
    raise ConfigError("a worker that tried the largest step took too long: raise --startup-timeout")


def small_medium(processor: Processor) -> MediaPlan | None:
    """Return the plan of a small image; None for a model that takes none."""
    return _image(processor, _SMALL_IMAGE)


def _image(processor: Processor, side: int) -> MediaPlan | None:
    try:
        return processor.plan_image(side, side, MediaOptions())
    except PromptError:
        return None


def _free(device: Device) -> int:
    room = device.room()
    return room.free if room else 0
