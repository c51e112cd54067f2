"""Run the processes of an instance's ranks: the worker is rank 0, forks the others, and ends when one of them does."""

import logging
import os
import select
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NoReturn

import torch

from ipc_buffers import Collective, CollectiveError, MessageQueue, PagePool
from unifiedserve.device import Device
from unifiedserve.errors import ConfigError
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.weights import attach_weights
from unifiedserve.models.registry import load_adapter, load_config
from unifiedserve.parents_end import end_with_parent
from unifiedserve.placement import Network
from unifiedserve.placement.cores import cores_by_node
from unifiedserve.placement.numa import cores_of_ranks
from unifiedserve.ranks.follower import follow
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.messages import Leave
from unifiedserve.ranks.parts import RankPart, parts_of
from unifiedserve.worker.fork_obstacles import fork_obstacles
from unifiedserve.worker.process_name import rename
from unifiedserve.worker.spec import WorkerSpec

_log = logging.getLogger(__name__)
_INBOX_BYTES = 8 << 20  # a step of 60,000 tokens fits into a message
_SLOT_BYTES = 1 << 20
_STOP_SECONDS = 5.0


class Ranks:
    """Hold the other ranks of the instance whose worker this process is."""

    def __init__(self, group: Group, children: dict[int, int]) -> None:
        """Take the ranks by their process ids, and watch them."""
        self.group = group
        self._children = {os.pidfd_open(pid): (pid, rank) for pid, rank in children.items()}
        self._dismissed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watch ranks", daemon=True)
        self._watcher.start()

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
    groups, leader, children = _groups(spec), os.getpid(), dict[int, int]()
    for group in groups[1:]:
        pid = os.fork()
        if pid == 0:
            _become_rank(leader, spec, device, group)
        children[pid] = group.part.rank
    _take_cores(groups[0].part)
    return Ranks(groups[0], children)


def _groups(spec: WorkerSpec) -> list[Group]:
    """Join all ranks of an instance, over memory without names that forked processes inherit."""
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
        ends = zip(parts, collectives, encoders, strict=True)
        return [Group(part, whole, inboxes, patience, encoder) for part, whole, encoder in ends]


def _take_cores(part: RankPart) -> None:
    """Keep this process on its part of the cores."""
    nodes = cores_by_node(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores_of_ranks(nodes, part.ranks)[part.rank])


def _become_rank(leader: int, spec: WorkerSpec, device: Device, group: Group) -> NoReturn:
    """Run as a rank until the worker dismisses it, and end this process."""
    code = 1
    try:
        end_with_parent()
        if os.getppid() == leader:  # else it died before the line above took hold
            rename(f"us:{spec.instance.name}"[:13] + f".{group.part.rank}")
            _run(spec, device, group)
            code = 0
    except (ConfigError, CollectiveError) as error:
        _log.error("rank %d: %s", group.part.rank, error)
    except BaseException:
        _log.exception("rank %d cannot go on", group.part.rank)
    finally:
        with suppress(BaseException):
            logging.shutdown()
        os._exit(code)


def _run(spec: WorkerSpec, device: Device, group: Group) -> None:
    _take_cores(group.part)
    device.sharing.enter(spec.instance, spec.config.machine.torch_threads)
    model_dir, dtype = Path(spec.model_dir), getattr(torch, spec.dtype)
    weights = attach_weights(spec.memory.weights_of_ranks[group.part.rank], device)
    networks: tuple[Network, ...] = (Network.LANGUAGE,)
    if (encoder := group.part.encoder.ranks).total > 1:  # which the first ranks have stored
        stored = spec.memory.weights_of_ranks[group.part.rank % encoder.tensor]
        weights, networks = attach_weights(stored, device) | weights, tuple(Network)
    adapter = load_adapter(model_dir, weights, dtype, device, networks, group)
    kv_dtype: torch.dtype = getattr(torch, spec.config.memory.kv_dtype(spec.dtype))
    layout = KVLayout.of(adapter.config, spec.config.memory.kv_page_tokens, kv_dtype, spec.ranks)
    pool = PagePool.attach(spec.layout.pool((spec.instance.memory, "kv")))
    assert adapter.part is not None  # it is in a group
    group.meet(spec.config.machine.startup_timeout)
    follow(adapter.part, KVCache(pool, layout, device=device, rank=group.part.rank), adapter.encoder_part)
