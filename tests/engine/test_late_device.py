"""All stages on a device that computes late: a page is given back, and a message sent, only when all is done.

Each worker has the device's queue to itself, as if it were a process, so that nothing but the fence orders their work.
"""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deferred_device
import pytest
import reference
from checkpoints import find_checkpoint
from deferred import DeferredDevice
from every_family import FAMILIES
from inline_workers import InlineWorkers, as_sent
from media import Clip
from test_families import questions

from unifiedserve.config import PLACEMENTS, EngineConfig
from unifiedserve.memory.device_pages import DevicePages, PageNumbers
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.registry import load_processor
from unifiedserve.worker.outbox import Outbox

TOKENS = 8
CONFIG = EngineConfig(prefill_chunk_tokens=16, vision_threads=1)
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS)
POISON = 0xFF  # NaN in each float


Release = Callable[[DevicePages, PageNumbers], None]


def taken_at_once(release: Release) -> Release:
    """Give pages back to somebody who waits for them, as another process may, and writes to them at once."""

    def release_and_take(pages: DevicePages, numbers: PageNumbers) -> None:
        release(pages, numbers)
        memory, size = pages.pool.memory, pages.pool.page_bytes
        for number in {int(number) for number in numbers if pages.pool.references(int(number)) == 0}:
            memory.write(number * size, bytes([POISON]) * size)

    return release_and_take


@pytest.fixture
def ask(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, clips: Callable[[int], Clip]) -> Callable[[], bool]:
    """Ask several things at once, of images and of videos; return whether all answers are those of transformers."""

    def right_answers() -> bool:
        checkpoint = find_checkpoint(tmp_path_factory, "qwen2_5_vl")
        hf, processor = reference.load(checkpoint), load_processor(checkpoint)
        asked = questions(FAMILIES["qwen2_5_vl"], clips)
        run = uuid.uuid4().hex  # what is left in a worker's queue is not for the next one of its name
        workers = InlineWorkers(
            PLACEMENTS["shared"],
            checkpoint,
            processor,
            CONFIG,
            DeferredDevice(),
            lambda name: deferred_device.process(f"{run}-{name}"),
        )
        try:
            for uid, question in enumerate(asked.values(), 1):
                workers.submit(uid, as_sent(question, processor, clips, tmp_path), GREEDY)
            found = [workers.answer(uid) for uid, _ in enumerate(asked, 1)]
        finally:
            workers.close()
        return found == [hf.generate(question.case, TOKENS) for question in asked.values()]

    return right_answers


def test_answers_are_right(ask: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DevicePages, "release", taken_at_once(DevicePages.release))
    assert ask()


def test_they_are_not_if_pages_are_given_back_early(ask: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule about pages, the test above fails."""
    monkeypatch.setattr(DevicePages, "release", taken_at_once(lambda pages, numbers: pages.pool.release(numbers)))
    assert not ask()


def test_they_are_not_if_messages_are_sent_early(ask: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule about messages, the test above fails."""
    connect = Outbox.__init__

    def without_fence(outbox: Outbox, *given: Any) -> None:
        connect(outbox, *given[:-1], lambda: None)

    monkeypatch.setattr(Outbox, "__init__", without_fence)
    assert not ask()
