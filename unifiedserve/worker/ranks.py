"""Run the processes of an instance's ranks: the worker is rank 0, forks the others, and ends when one of them does."""

import logging
import os
import select
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from ipc_buffers import Collective, CollectiveError, Memory, MessageQueue, PagePool
from unifiedserve.device import CPU, Device, Meeting
from unifiedserve.errors import ConfigError
from unifiedserve.memory.kv_cache import KVCache, KVPages, kv_layout
from unifiedserve.memory.weights import attach_weights
from unifiedserve.models.adapters import load_adapter
from unifiedserve.models.registry import load_config
from unifiedserve.parents_end import end_with_parent
from unifiedserve.placement import Network
from unifiedserve.placement.cores import cores_by_node
from unifiedserve.placement.numa import cores_of_ranks
from unifiedserve.ranks.decoder import FollowingDecoder
from unifiedserve.ranks.follower import follow
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.messages import Leave
from unifiedserve.ranks.parts import RankPart, parts_of
from unifiedserve.worker.fork_obstacles import fork_obstacles
from unifiedserve.worker.language.own_decoder import decoder_of
from unifiedserve.worker.process_name import rename
from unifiedserve.worker.spec import WorkerSpec
from unifiedserve.worker.weights_sum import sum_of_ranks

_log = logging.getLogger(__name__)
_INBOX_BYTES = 8 << 20  # a step of 60,000 tokens fits into a message
_SLOT_BYTES = 1 << 20
_STOP_SECONDS = 5.0


class Ranks:
    """Hold the other ranks of the instance whose worker this process is."""

    def __init__(self, join: Callable[[], Group], children: dict[int, int]) -> None:
        """Take the ranks by their process ids, watch them, and join them."""
        self._children = {os.pidfd_open(pid): (pid, rank) for pid, rank in children.items()}
        self._dismissed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watch ranks", daemon=True)
        self._watcher.start()
        self.group = join()

    def dismiss(self) -> None:
        """Have them end, and wait for it; the kernel ends late ones after this process."""
        self._dismissed.set()
        self.group.tell(Leave())
        self._watcher.join(_STOP_SECONDS)

    def _watch(self) -> None:
        """Wait for the ranks' ends; where one is none that was asked for, the worker ends, too."""
        poll = select.poll()
        for descriptor in self._children:
            poll.register(descriptor, select.POLLIN)
        left = len(self._children)
        while left:
            for descriptor, _ in poll.poll():
                poll.unregister(descriptor)
                pid, rank = self._children[descriptor]
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                left -= 1
                if code or not self._dismissed.is_set():
                    _log.error("rank %d ended with code %d, and with it this worker", rank, code)
                    logging.shutdown()
                    os._exit(1)


def fork_ranks(spec: WorkerSpec, device: Device) -> Ranks | None:
    """Fork the other ranks of an instance and give each its cores, this process included; None for a single one.

    This process must have no further threads. Raises ConfigError if it has, or if the model cannot be divided.
    """
    if spec.ranks == 1:
        return None
    if obstacles := fork_obstacles():
        raise ConfigError(f"--tensor-parallel-size {spec.ranks}: the worker cannot be forked: {'; '.join(obstacles)}")
    ends, leader, children = _ends(spec), os.getpid(), dict[int, int]()
    for rank in range(1, spec.ranks):
        pid = os.fork()
        if pid == 0:
            _become_rank(leader, spec, device, ends, rank)
        children[pid] = rank
    _take_cores(spec, device, 0)
    return Ranks(lambda: ends.group(0, device), children)


class _Ends(NamedTuple):
    """Hold what all ranks of an instance share: memory without names that forked processes inherit."""

    parts: list[RankPart]
    collectives: list[Collective]
    encoders: list[Collective | None]
    inboxes: list[MessageQueue]
    patience: float

    def group(self, rank: int, device: Device) -> Group:
        """Join the others, which do the same, as a rank. Raises ConfigError if the device cannot."""
        part, collective, encoder = self.parts[rank], self.collectives[rank], self.encoders[rank]
        shared = part.encoder.ranks.tensor
        meeting = Meeting(rank, len(self.parts), collective, encoder, shared, self.patience)
        return Group(part, collective, device.exchanges(meeting), self.inboxes, self.patience)


def _ends(spec: WorkerSpec) -> _Ends:
    shared = spec.config.machine.encoder_ranks_of(spec.instance)
    parts = parts_of(load_config(Path(spec.model_dir)), spec.ranks, shared)
    name = spec.layout.arena(f"ranks-{os.getpid()}")
    patience = spec.config.machine.worker_timeout
    with ExitStack() as stack:  # the names go at once

        def joined(own: str, ranks: int) -> list[Collective]:
            arena = Collective.create(own, ranks, _SLOT_BYTES)
            stack.callback(arena.unlink)
            return [Collective.join(own, rank, patience) for rank in range(ranks)]

        collectives = joined(name, spec.ranks)
        encoders: list[Collective | None] = [None] * spec.ranks
        if shared.tensor > 1:
            encoders = [end for group in range(shared.data) for end in joined(f"{name}-e{group}", shared.tensor)]
        inboxes = [MessageQueue.create(f"{name}-{part.rank}", _INBOX_BYTES) for part in parts[1:]]
        for inbox in inboxes:
            stack.callback(inbox.unlink)
        return _Ends(parts, collectives, encoders, inboxes, patience)


def _take_cores(spec: WorkerSpec, device: Device, rank: int) -> None:
    """Keep this process on its part of the cores, if it computes with them."""
    if device.synchronous:
        nodes = cores_by_node(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores_of_ranks(nodes, spec.ranks)[rank])


def _become_rank(leader: int, spec: WorkerSpec, device: Device, ends: _Ends, rank: int) -> NoReturn:
    """Run as a rank until the worker dismisses it, and end this process."""
    code = 1
    try:
        end_with_parent()
        if os.getppid() == leader:  # else it died before the line above took hold
            rename(f"us:{spec.instance.name}"[:13] + f".{rank}")
            _run(spec, device, ends, rank)
            code = 0
    except (ConfigError, CollectiveError) as error:
        _log.error("rank %d: %s", rank, error)
    except BaseException:
        _log.exception("rank %d cannot go on", rank)
    finally:
        with suppress(BaseException):
            logging.shutdown()
        os._exit(code)


def _run(spec: WorkerSpec, device: Device, ends: _Ends, rank: int) -> None:
    if spec.environments_of_ranks:
        os.environ.update(spec.environments_of_ranks[rank - 1])  # its GPU is the first one that it sees
    _take_cores(spec, device, rank)
    group = ends.group(rank, device)
    device.sharing.enter(spec.instance, spec.config.machine.torch_threads)
    device.verify()
    if spec.memory.place != CPU.place:
        sum_of_ranks(spec, device, group)
    weights = attach_weights(spec.memory.weights_of_ranks[rank], device)
    networks: tuple[Network, ...] = (Network.LANGUAGE,)
    if (encoder := group.part.encoder.ranks).total > 1:
        networks = tuple(Network)
        if not device.apart:  # the first ranks have stored it for all
            weights = attach_weights(spec.memory.weights_of_ranks[rank % encoder.tensor], device) | weights
    adapter = load_adapter(Path(spec.model_dir), weights, getattr(torch, spec.dtype), device, networks, group)
    kv = _pages(spec, device, adapter.config, rank)
    assert adapter.part is not None  # it is in a group
    group.meet(spec.config.machine.startup_timeout)
    own = decoder_of(spec, adapter, kv)
    decoder = FollowingDecoder(own, adapter.part) if own else None
    follow(adapter.part, kv, adapter.encoder_part, decoder)
    device.fence()


def _pages(spec: WorkerSpec, device: Device, config: Any, rank: int) -> KVPages:
    """Return a rank's keys and values: part of the pages that all ranks share, or pages of its own."""
    layout = kv_layout(spec.config, config, spec.dtype, device)
    if own := list(spec.memory.kv_of_ranks):
        data = device.view(Memory.attach(own[rank - 1])).view(-1, layout.page_bytes)
        return KVPages(data, layout, device)
    pool = PagePool.attach(spec.layout.pool((spec.instance.memory, "kv")))
    return KVCache(pool, layout, device=device, part=rank)
