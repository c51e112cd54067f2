"""Size KV caches on devices with memory of their own: together they take what their device has left."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from unifiedserve.config import EngineConfig
from unifiedserve.device import Device, Room
from unifiedserve.engine.device_room import check_context, check_room, describe, unseen_bytes, workers_bytes
from unifiedserve.engine.rehearsal import Footprint
from unifiedserve.memory.shared import EngineLayout, MemoryLayout, PoolSize
from unifiedserve.models.context_length import context_length
from unifiedserve.models.processor import Processor

_log = logging.getLogger(__name__)


class DeviceSizes:
    """Tell what each device of an engine is used for."""

    def __init__(self, config: EngineConfig, processor: Processor, device: Device) -> None:
        self._config = config
        self._text = processor.config.get_text_config()
        self._device = device

    def check(self, layout: EngineLayout, weights: Mapping[str, Sequence[int]]) -> None:
        """Raise RoomError if it is known before that weights or buffers do not fit. Weights are by memory and rank."""
        for place in layout.places:
            own = layout.at(place)
            uses = {"weights": sum(max(weights[memory], default=0) for memory in own.memories)}
            if self._config.memory.kv_cache_mib:
                uses["KV cache"] = own.kv_bytes
            check_room(self._room(layout, place), self._config, {**uses, **own.buffers()})

    def sized(self, layout: EngineLayout, footprints: Mapping[str, Footprint]) -> tuple[EngineLayout, dict[str, int]]:
        """Return the layout with the largest KV caches that their devices allow. A size that is given stays.

        Also return the bytes that workers take of all devices, by use. `footprints` has what one of each memory takes.
        Raises RoomError, with the numbers, where a device has too little.
        """
        taken = Counter[str]()
        for place in layout.places:
            layout, workers = self._sized_at(layout, place, footprints)
            taken.update(workers)
        return layout, dict(taken)

    def _sized_at(
        self, layout: EngineLayout, place: str, footprints: Mapping[str, Footprint]
    ) -> tuple[EngineLayout, dict[str, int]]:
        config, placement = self._config, self._config.machine.workers
        room, own = self._room(layout, place), layout.at(place)
        videos = self._device.at(place).video_bytes()
        workers = workers_bytes(placement, own, footprints)
        buffers = own.buffers()
        grows = own.kv_bytes and not config.memory.kv_cache_mib
        if grows:  # as if decode took nothing: what it takes depends on how much the cache holds
            left = check_room(room, config, {**buffers, **workers, **unseen_bytes(placement, own, {}, videos)})
            own = _with_kv_bytes(own, left)
        decode = {name: self._decode_bytes(memory, layout.state_pages) for name, memory in own.memories.items()}
        workers |= unseen_bytes(placement, own, decode, videos)
        if grows:
            own = _with_kv_bytes(own, check_room(room, config, {**buffers, **workers}))
        else:
            check_room(room, config, {"KV cache": own.kv_bytes, **buffers, **workers})
        tokens = [self._tokens_held(memory, layout.state_pages) for memory in own.memories.values() if memory.kv.pages]
        if tokens:
            check_context(room, config, min(tokens))
        _log.info("%s", describe(room, own, workers, tokens))
        return msgspec.structs.replace(layout, memories={**layout.memories, **own.memories}), workers

    def _room(self, layout: EngineLayout, place: str) -> Room:
        """Return the room of a device, named by its place where there are several.

        It is the least that ranks have whose first one is there: all take as much, or less.
        """
        ranks = {each: None for memory in layout.at(place).memories.values() for each in memory.place_of_ranks}
        rooms = [room for each in ranks if (room := self._device.at(each).room())]
        if not rooms:
            raise TypeError(f"{place} has no memory of its own")
        room = min(rooms, key=lambda room: room.free)
        if len(layout.memories) == 1:
            return room
        return room._replace(name=f"{room.name} ({place}, with {' and '.join(layout.at(place).memories)})")

    def _tokens_held(self, memory: MemoryLayout, state_pages: int) -> int:
        return (memory.kv.pages - state_pages) * self._config.memory.kv_page_tokens

    def _decode_bytes(self, memory: MemoryLayout, state_pages: int) -> int:
        """Return what a worker's decode takes beside the KV cache of a memory."""
        config, page_tokens = self._config, self._config.memory.kv_page_tokens
        longest = config.checkpoint.max_model_len or context_length(self._text)
        tokens = min(longest, self._tokens_held(memory, state_pages))
        return self._device.decode_bytes(self._text, config.scheduling.max_running, tokens, page_tokens)


def _with_kv_bytes(layout: EngineLayout, size: int) -> EngineLayout:
    """Return the layout with `size` bytes for its KV caches, the same for each."""
    caches = [name for name, memory in layout.memories.items() if memory.kv.pages]
    changed = {name: _with_kv(layout.memories[name], size // len(caches)) for name in caches}
    return msgspec.structs.replace(layout, memories={**layout.memories, **changed})


def _with_kv(memory: MemoryLayout, size: int) -> MemoryLayout:
    kv = PoolSize(size // memory.kv.page_bytes, memory.kv.page_bytes)
    return msgspec.structs.replace(memory, kv=kv)
