"""Answer over ranks that are processes, each with a stand-in for a GPU and memory of its own; print tokens as JSON.

gpu_ranks_process.py CHECKPOINT IMAGE RANKS ENCODER_RANKS PLACEMENT
gpu_ranks_process.py < SPEC                                   is the worker, which forks the other ranks

With one rank the processor answers. IMAGE may be "none". The worker prints a line of its own before: of what kinds are
the messages to the other ranks.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import deferred_device
import msgspec
import torch
from deferred import DeferredDevice
from inline_workers import SECONDS, Asked, InlineWorkers
from PIL import Image

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device, Room
from unifiedserve.engine.engine_memory import EngineMemory
from unifiedserve.engine.environments import with_environments
from unifiedserve.engine.rehearsal import Footprint
from unifiedserve.memory.shared import ENGINE_INBOX, EngineLayout
from unifiedserve.messages.media import Source
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import MediaSource, Shutdown, Token, unpack
from unifiedserve.models.processor import MediaOptions, Processor
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import Placement, read_placement
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.messages import Message
from unifiedserve.worker.loop import Worker
from unifiedserve.worker.ranks import fork_ranks
from unifiedserve.worker.spec import WorkerSpec

MIB = 1 << 20
SMALL = {"patch_buffer_mib": 4, "visual_buffer_mib": 4, "visual_cache_mib": 0, "kv_cache_mib": 8}
TOKENS = 12


class RankedWorkers(InlineWorkers):
    """Workers that are processes, over several ranks, whose memory an engine has made."""

    def take_memory(
        self, placement: Placement, checkpoint: Path, processor: Processor, config: EngineConfig, device: Device
    ) -> EngineLayout:
        footprint = Footprint(MIB, MIB)
        self._engine = EngineMemory(config, checkpoint, processor, device, lambda memory, dtype, stages: footprint)
        self.memory = self._engine.shared
        return self.memory.layout

    def start_worker(self, spec: WorkerSpec, device: Device) -> Any:
        spec, _ = with_environments(spec, device.sharing.environment)
        process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(msgspec.msgpack.encode(spec))
        process.stdin.close()
        return process

    def turn(self) -> None:
        for data in self.memory.inboxes[ENGINE_INBOX].receive_many(256, timeout=1.0):
            self._take(unpack(data))
        assert all(each.poll() is None for each in self._workers.values()), "a worker has ended"

    def close(self) -> None:
        for instance in self.memory.layout.instances:
            self.send(instance, Shutdown())
        codes = [each.wait(SECONDS) for each in self._workers.values()]
        self.free_memory()
        assert not any(codes)

    def free_memory(self) -> None:
        self._engine.free()


heard, told, met = Group.hear, Group.tell, Group.meet
kinds: set[str] = set()


def hear(group: Group) -> Message:
    """Do what is queued before waiting: a GPU would have done it by itself."""
    deferred_device.finish()
    return heard(group)


def meet(group: Group, seconds: float | None = None, patience: int = 1) -> None:
    """Do the same before the host waits for the other ranks."""
    deferred_device.finish()
    met(group, seconds, patience)


def tell(group: Group, message: Message) -> None:
    kinds.add(type(message).__name__)
    told(group, message)


def work() -> None:
    """Be the worker of a specification."""
    Group.hear, Group.tell, Group.meet = hear, tell, meet  # type: ignore[method-assign]
    spec, device = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=WorkerSpec), DeferredDevice()
    worker = Worker(spec, device, ranks=fork_ranks(spec, device))
    try:
        worker.run()
    finally:
        worker.close()
    print(json.dumps(sorted(kinds)))


def ask(workers: InlineWorkers, image: str) -> dict[int, list[int]]:
    """Ask of texts of several lengths, one of them for two answers, and of an image, all at once."""
    random, lengths = torch.Generator().manual_seed(0), (5, 40, 17)
    for uid, length in enumerate(lengths, 1):
        sampling = SamplingParams(temperature=0.8 * (uid == 2), seed=uid, max_tokens=TOKENS + uid)
        asked = Asked(torch.randint(3, 64, (length,), generator=random).tolist(), [], [])
        workers.submit(uid, asked, sampling, answers=1 + (uid == 2))
    if image != "none":
        workers.submit(9, asked_of(workers.processor, image), SamplingParams(temperature=0, max_tokens=TOKENS))
    asked_for = len(lengths) + 1 + (image != "none")
    workers.run_until(lambda: sum(bool(token.finish) for token in tokens(workers)) == asked_for)
    found = defaultdict[int, list[int]](list)
    for token in sorted(tokens(workers), key=lambda token: (token.index, token.number)):
        found[token.uid].append(token.token.token)
    return found


def asked_of(processor: Processor, image: str) -> Asked:
    with Image.open(image) as picture:
        plan = processor.plan_image(*picture.size, MediaOptions())
    content = [{"type": "image"}, {"type": "text", "text": "What is it?"}]
    prompt = processor.prompt([{"role": "user", "content": content}], [plan])
    return Asked(
        prompt.token_ids, [plan], [MediaSource(plan=plan, name="image", first_unit=0, where=Source(path=image))]
    )


def tokens(workers: InlineWorkers) -> list[Token]:
    return [each for each in workers.told if isinstance(each, Token)]


def main() -> None:
    if len(sys.argv) == 1:
        work()
        return
    checkpoint, image, ranks, encoder, placement = sys.argv[1:]
    several = int(ranks) > 1
    given = {"tensor_parallel_size": int(ranks), "encoder_ranks": encoder} if several else {}
    device = DeferredDevice(lambda: Room("a GPU", 512 * MIB, 500 * MIB)) if several else CPU
    workers = (RankedWorkers if several else InlineWorkers)(
        read_placement(placement, ()),
        Path(checkpoint),
        load_processor(Path(checkpoint)),
        EngineConfig.of(
            placement=placement, vision_threads=1, prefill_chunk_tokens=16, max_running=6, **SMALL, **given
        ),
        device,
    )
    try:
        answers = ask(workers, image)
    finally:
        workers.close()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
