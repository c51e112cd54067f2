"""All stages on a device that computes late: a page is given back, and a message sent, only when all is done.

Each worker has the device's queue to itself, as if it were a process, so that nothing but the fence orders their work.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reference
from checkpoints import find_checkpoint
from deferred import DeferredDevice, deferred_device
from every_family import FAMILIES
from inline_workers import InlineWorkers, as_sent
from media import Clip
from test_families import questions

from unifiedserve.config import PLACEMENTS, EngineConfig
from unifiedserve.memory.device_pages import DevicePages, PageNumbers
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.registry import load_processor

TOKENS = 8
CONFIG = EngineConfig(prefill_chunk_tokens=16, vision_threads=1)
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS)
POISON = 0xFF  # NaN in each float


@pytest.fixture
def pages_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for pages takes and writes those that come free at once, as another process may."""
    release = DevicePages.release

    def release_and_take(pages: DevicePages, numbers: PageNumbers) -> None:
        release(pages, numbers)
        memory, size = pages.pool.memory, pages.pool.page_bytes
        for number in {int(number) for number in numbers if pages.pool.references(int(number)) == 0}:
            memory.write(number * size, bytes([POISON]) * size)

    monkeypatch.setattr(DevicePages, "release", release_and_take)


@pytest.fixture
def ask(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    clips: Callable[[int], Clip],
    pages_are_taken_at_once: None,
) -> Callable[[], bool]:
    """Ask several things at once, of images and of videos; return whether all answers are those of transformers."""

    def right_answers() -> bool:
        checkpoint = find_checkpoint(tmp_path_factory, "qwen2_5_vl")
        hf, processor = reference.load(checkpoint), load_processor(checkpoint)
        asked = questions(FAMILIES["qwen2_5_vl"], clips)
        placement, device = PLACEMENTS["shared"], DeferredDevice()
        workers = InlineWorkers(placement, checkpoint, processor, CONFIG, device, deferred_device.process)
        try:
            for uid, question in enumerate(asked.values(), 1):
                workers.submit(uid, as_sent(question, processor, clips, tmp_path), GREEDY)
            found = [workers.answer(uid) for uid, _ in enumerate(asked, 1)]
        finally:
            workers.close()
        return found == [hf.generate(question.case, TOKENS) for question in asked.values()]

    return right_answers


def test_answers_are_right(ask: Callable[[], bool]) -> None:
    assert ask()


def test_they_are_not_if_pages_are_given_back_early(ask: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail: the rule about pages is needed."""
    monkeypatch.setattr(DevicePages, "finish", lambda pages: None)
    assert not ask()


def test_they_are_not_if_messages_are_sent_early(ask: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail: the rule about messages is needed."""
    connect = Outbox.__init__

    def without_fence(outbox: Outbox, *given: Any) -> None:
        connect(outbox, *given[:-1], lambda: None)

    monkeypatch.setattr(Outbox, "__init__", without_fence)
    assert not ask()
