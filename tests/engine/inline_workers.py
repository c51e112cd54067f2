"""Real workers of any placement, side by side in this process, and what an engine sends them."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import deferred_device
import msgspec
import torch
from media import Clip, Frames
from model_loop import plans
from PIL import Image
from questions import Question

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.engine.buffer_sizes import plan_layout
from unifiedserve.engine.caches import Caches, Known
from unifiedserve.engine.weight_source import wanted_by
from unifiedserve.memory.shared import ENGINE_INBOX, EngineLayout, PoolKey, PoolSize, SharedMemory, create_pages, free
from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.memory.weights import create_weights, write_weights
from unifiedserve.messages.media import MediaPlan, Source
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import (
    Abort,
    Drained,
    Failed,
    HandedOver,
    Heard,
    MediaSource,
    Message,
    PrefillRequest,
    PromptLogprobs,
    PromptVector,
    Report,
    Span,
    Stale,
    Token,
    Unfit,
    VisionRequest,
    pack,
    unpack,
)
from unifiedserve.models.processor import MediaOptions, Processor
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import Load, Placement, Stage, choose_route, read_placement
from unifiedserve.worker.assembly import begin_log
from unifiedserve.worker.lane import ON_MESSAGE
from unifiedserve.worker.loop import Worker
from unifiedserve.worker.spec import WorkerSpec

PAGES = 256  # of each pool
SECONDS = 100.0  # in which a busy machine gets anywhere
TOKEN = "01" * 32  # of the carriers
NOTHING = Known()


def _here(name: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass
class Asked:
    """A question as the engine would send it."""

    token_ids: list[int]
    media: list[MediaPlan]
    sources: list[MediaSource]


def as_sent(question: Question, processor: Processor, clips: Callable[[int], Clip], folder: Path) -> Asked:
    """Return the question with every frame of its videos; its images are written to files in `folder`."""
    media = plans(processor, question.case, MediaOptions(num_frames=-1))
    images = iter(question.case.images)
    videos = iter(clips(len(frames)).path for frames in question.case.videos)
    sources, first = [], 0
    for plan in media:
        path = next(videos) if plan.kind == "video" else _save(next(images), folder / f"{uuid.uuid4().hex}.png")
        sources.append(MediaSource(plan=plan, name=plan.kind, first_unit=first, where=Source(path=str(path))))
        first += plan.units
    return Asked(processor.prompt(question.case.messages, media).token_ids, media, sources)


def with_pages(layout: EngineLayout) -> EngineLayout:
    """Return the layout with `PAGES` pages in each pool that there is."""

    def sized(size: PoolSize) -> PoolSize:
        return PoolSize(min(size.pages, PAGES), size.page_bytes)

    memories = {
        name: msgspec.structs.replace(
            memory, kv=sized(memory.kv), patch=sized(memory.patch), visual=sized(memory.visual)
        )
        for name, memory in layout.memories.items()
    }
    return msgspec.structs.replace(layout, memories=memories)


class InlineWorkers:
    """All workers of a placement, which take turns, and what an engine does for them."""

    def __init__(
        self,
        placement: Placement,
        checkpoint: Path,
        processor: Processor,
        config: EngineConfig,
        device: Device = CPU,
        process: Callable[[str], AbstractContextManager[None]] = _here,
    ) -> None:
        """Start them on a device; what a worker does is done within the `process` of its name."""
        layout = self.take_memory(placement, checkpoint, processor, config, device)
        self.tokens: dict[int, dict[int, int]] = {}
        self.told: list[Token | PromptLogprobs | PromptVector] = []
        self.ended: set[int] = set()
        self.through: set[int] = set()
        self.spans: list[Span] = []
        self.drained: set[int] = set()
        self.heard: list[Heard] = []
        self.handed: list[HandedOver] = []
        self.stale: set[int] = set()
        self.caches = Caches(config, placement, self.memory.pools, processor)
        self.processor = processor
        self._placement = placement
        self._loads: dict[int, Load] = {}
        self._process = process
        self._workers = {}
        self._wakes: dict[str, float] = {}
        for number, instance in enumerate(placement.instances, 1):
            spec = WorkerSpec(
                config=config,
                placement=placement,
                instance=instance,
                number=number,
                layout=layout,
                device=device.name,
                model_dir=str(checkpoint),
                dtype="float32",
                patch_row_bytes=processor.patch_row_bytes,
                visual_dim=processor.visual_dim,
                vocab_size=processor.vocab_size,
                eos_token_ids=processor.eos_token_ids,
                carrier_token=TOKEN,
            )
            with process(instance.name):
                self._workers[instance.name] = self.start_worker(spec, device)

    def take_memory(
        self, placement: Placement, checkpoint: Path, processor: Processor, config: EngineConfig, device: Device
    ) -> EngineLayout:
        """Make what the workers share."""
        name = f"test-workers-{uuid.uuid4().hex[:12]}"
        layout = with_pages(plan_layout(config, placement, processor, "float32", name, f"{name}-weights", CPU))
        self._pages = create_pages(layout, name)
        self.memory = SharedMemory.create(layout, self._pages)
        files = SafetensorsFiles(checkpoint)
        self._weights = [
            create_weights(files, own.weights, torch.float32, CPU.place, wanted_by(own.networks, processor.config))
            for own in layout.memories.values()
            if own.weights
        ]
        write_weights(self._weights, files)
        return layout

    def start_worker(self, spec: WorkerSpec, device: Device) -> Worker:
        return Worker(spec, device, log=begin_log(spec))

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self.free_memory()

    def free_memory(self) -> None:
        self.memory.unlink()
        free([*self._weights, *self._pages.values()])

    def send(self, host: str, message: Message) -> None:
        self.memory.inboxes[host].send(pack(message))

    def served_by(self, instance: str) -> set[int]:
        """The requests that were to be decoded by an instance."""
        return {uid for uid, load in self._loads.items() if load.route.decode == instance}

    def abort(self, uid: int) -> None:
        """Call a request back from all stages."""
        route = self._loads[uid].route
        for host in route.hosts(route.first):
            self.send(host, Abort(uid, route, stage=route.first))

    def submit(
        self,
        uid: int,
        asked: Asked,
        sampling: SamplingParams,
        answers: int = 1,
        embed: bool = False,
        target: float = float("inf"),
        known: Known = NOTHING,
    ) -> None:
        """Send a request; what is `known` of it has no media to be decoded if it can be read elsewhere."""
        arrival = monotonic()
        decodes = bool(asked.sources) and not known.reuse.offers
        route = choose_route(self._placement, self._loads.values(), media=bool(asked.sources))
        route = route if decodes else route.at_prefill()
        self._loads[uid] = Load(route, {stage: len(asked.token_ids) for stage in Stage})
        ticket = Ticket(uid, arrival, due=arrival + target, route=route)
        self.tokens[uid] = {}
        request = PrefillRequest(
            ticket=ticket,
            token_ids=asked.token_ids,
            num_prompt=len(asked.token_ids),
            media=asked.media,
            sampling=sampling,
            indices=list(range(answers)),
            embed=embed,
            **known._asdict(),
        )
        for host in dict.fromkeys([route.prefill, *route.encode]):
            self.send(host, request)
        if decodes:
            self.send(route.vision, VisionRequest(ticket=ticket, media=asked.sources))

    def turn(self) -> None:
        """Let each worker do a step, unless it waits for a message and there is none."""
        for name, worker in self._workers.items():
            if self._wakes.get(name) != ON_MESSAGE or self.memory.inboxes[name].pending():
                with self._process(name):
                    self._wakes[name] = worker.turn(0.0)
        for data in self.memory.inboxes[ENGINE_INBOX].receive_many(256, timeout=0):
            self._take(unpack(data))

    def run_until(self, reached: Callable[[], bool]) -> None:
        end = monotonic() + SECONDS
        while not reached():
            assert monotonic() < end, "a request is stuck"
            self.turn()

    def answer(self, uid: int) -> list[int]:
        self.run_until(lambda: uid in self.ended)
        return [token for _, token in sorted(self.tokens[uid].items())]

    def used_pages(self) -> dict[PoolKey, int]:
        return {name: pool.used_pages() for name, pool in self.memory.pools.items()}

    def _take(self, message: Message) -> None:
        assert not isinstance(message, Failed | Unfit), message
        if isinstance(message, PromptLogprobs | PromptVector):
            self.told.append(message)
        elif isinstance(message, Report):
            self.told += message.tokens
            self.spans += message.spans
            self.through |= set(message.through)
            self.caches.learn(message.instance, message.kept, message.address)
            for token in message.tokens:
                self.tokens[token.uid][token.number] = token.token.token
                if token.finish is not None:
                    self.ended.add(token.uid)
        elif isinstance(message, HandedOver):
            self.handed.append(message)
        elif isinstance(message, Stale):
            self.stale.add(message.uid)
        elif isinstance(message, Heard):
            self.heard.append(message)
        elif isinstance(message, Drained):
            assert self.memory.reclaim(message.uid) == 0, "pages were left behind"
            self.drained.add(message.uid)


@contextmanager
def apart(checkpoint: Path, config: EngineConfig, device: Device, placement: str = "shared") -> Iterator[InlineWorkers]:
    """Yield workers on a device, each of which has the queue of one that computes late to itself."""
    run = uuid.uuid4().hex  # what is left in a worker's queue is not for the next one of its name
    workers = InlineWorkers(
        read_placement(placement, ()),
        checkpoint,
        load_processor(checkpoint),
        config,
        device,
        lambda instance: deferred_device.process(f"{run}-{instance}"),
    )
    try:
        yield workers
    finally:
        workers.close()


def _save(image: Frames, path: Path) -> Path:
    Image.fromarray(image).save(path)
    return path
