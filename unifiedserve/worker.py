"""The loop that every worker process runs: receive, schedule, step, send.

`python -m unifiedserve.worker` reads its `WorkerSpec` from standard input. It owns nothing that a
successor could not pick up: pages are tagged in shared memory, and the engine keeps the requests.
"""

import ctypes
import logging
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import torch

from unifiedserve.config import EngineConfig, Instance, Stage
from unifiedserve.errors import ConfigError
from unifiedserve.grammar import Grammars, tokenizer_json
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.memory.shared import MemoryLayout, SharedMemory
from unifiedserve.memory.weights import attach_weights
from unifiedserve.messages import Abort, Message, OutputReady, Ready, Shutdown, Unfit, pack, unpack
from unifiedserve.models.chat import load_tokenizer
from unifiedserve.models.registry import load_adapter, load_config
from unifiedserve.scheduling import Budget
from unifiedserve.stages.decode import DecodeStage
from unifiedserve.stages.encode import EncodeStage
from unifiedserve.stages.lane import AT_ONCE, ON_MESSAGE, Lane
from unifiedserve.stages.language import LanguageModel
from unifiedserve.stages.language_lane import LanguageLane
from unifiedserve.stages.lone_step import measure_lone_step
from unifiedserve.stages.port import Port
from unifiedserve.stages.prefill import PrefillStage
from unifiedserve.stages.sampler import Sampler
from unifiedserve.stages.vision import VisionStage
from unifiedserve.stages.vision_lane import VisionLane

_MOST_MESSAGES = 256
_PR_SET_PDEATHSIG = 1


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs to attach and begin. `number` tags the pages it takes."""

    config: EngineConfig
    instance: Instance
    number: int
    supervisor: int  # its process id
    layout: MemoryLayout
    model_dir: str
    dtype: str
    patch_row_bytes: int
    visual_dim: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]


class Worker:
    """The stages of one instance, and their connections."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._memory = SharedMemory.attach(spec.layout)
        self._port = Port(spec.config.workers, spec.instance.name, self._memory)
        self._lanes: list[Lane] = []
        try:
            self._lanes, decode_step = _lanes(spec, self._memory, self._port)
        except ConfigError as error:
            self._port.to_engine(Unfit(str(error)))  # and wait for the engine to end what else has been started
        else:
            self._port.to_engine(Ready(spec.instance.name, decode_step))

    def run(self) -> None:
        """Serve until told to shut down."""
        inbox, wake = self._port.inbox, ON_MESSAGE
        while True:
            early = self._port.take_early()
            timeout = None if wake == ON_MESSAGE else max(0.0, wake - time.monotonic())
            for data in early + inbox.receive_many(_MOST_MESSAGES, timeout=0 if early else timeout):
                message = unpack(data)
                if isinstance(message, Shutdown):
                    return
                self._accept(message)
            wake = self._step()

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()

    def _accept(self, message: Message) -> None:
        if not isinstance(message, Abort):
            for lane in self._lanes:
                lane.accept(message)
            return
        for lane in self._lanes:
            lane.drop(message.uid, message.index)
        if message.index is None:
            self._port.forward_abort(message)

    def _step(self) -> float:
        """The time for the next one."""
        wake = min((lane.step() for lane in self._lanes), default=ON_MESSAGE)
        for message in self._port.take_local():
            self._accept(message)
            wake = AT_ONCE
        self._port.flush({stage: count for lane in self._lanes for stage, count in lane.counts().items()})
        return wake


def _lanes(spec: WorkerSpec, memory: SharedMemory, port: Port) -> tuple[list[Lane], float | None]:
    """The lanes of the instance, and the seconds of a lone decode step if it hosts decode."""
    stages = set(spec.instance.stages)
    patches = RowBuffer(memory.pools["patch"], spec.patch_row_bytes, torch.uint8)
    lanes: list[Lane] = []
    decode_step = None
    if Stage.VISION in stages:
        inbox = port.inbox
        vision = VisionStage(patches, spec.number, spec.config.vision_threads, lambda: inbox.send(pack(OutputReady())))
        lanes.append(VisionLane(vision, port))
    if stages - {Stage.VISION}:
        lane, decode_step = _language_lane(spec, memory, patches, port)
        lanes.append(lane)
    return lanes, decode_step


def _language_lane(
    spec: WorkerSpec, memory: SharedMemory, patches: RowBuffer, port: Port
) -> tuple[LanguageLane, float | None]:
    config, number = spec.config, spec.number
    dtype = getattr(torch, spec.dtype)
    model_dir = Path(spec.model_dir)
    adapter = load_adapter(model_dir, attach_weights(spec.layout.weights), dtype)
    visual = RowBuffer(memory.pools["visual"], spec.visual_dim, dtype)
    layout = KVLayout.of(load_config(model_dir), config.kv_page_tokens, dtype)
    kv = KVCache(memory.pools["kv"], layout, visual.rows)
    model = LanguageModel(adapter, kv)
    grammars = Grammars(lambda: tokenizer_json(load_tokenizer(model_dir)), spec.vocab_size, spec.eos_token_ids)
    sampler = Sampler(grammars, spec.eos_token_ids)
    decode = DecodeStage(model, visual, number, sampler)
    generates = Stage.DECODE in spec.instance.stages and adapter.pooling is None
    decode_step = measure_lone_step(model, decode) if generates else None
    grammars.start()  # not beside the measurement
    lane = LanguageLane(
        model,
        visual,
        EncodeStage(adapter, patches, visual, number),
        PrefillStage(model, visual, number, sampler),
        decode,
        frozenset(spec.instance.stages),
        Budget(
            prefill_tokens=config.prefill_chunk_tokens,
            encode_tokens=config.encode_budget_tokens,
            max_running=config.max_running,
            kv_page_tokens=config.kv_page_tokens,
            kv_reserve=int(config.kv_growth_reserve * kv.pool.num_pages),
            rest=config.rest_between_steps,
            stretch=config.stretch,
            slo_tbt=config.seconds_between_tokens(decode_step or 0.0),
            overlap=not config.no_overlap,
        ),
        port,
    )
    return lane, decode_step


def main() -> None:
    """Entry of the process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # never outlive the supervisor
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the supervisor sends Shutdown
        signal.signal(number, signal.SIG_IGN)
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerSpec)
    if os.getppid() != spec.supervisor:
        return  # it died before the line above took hold
    form = f"%(asctime)s {spec.instance.name} %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form)
    os.nice(spec.instance.nice)
    torch.set_num_threads(spec.config.torch_threads or len(os.sched_getaffinity(0)))
    worker = Worker(spec)
    try:
        worker.run()
    finally:
        worker.close()


if __name__ == "__main__":
    main()
