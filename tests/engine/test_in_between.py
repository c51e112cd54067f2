"""A short prompt that comes while media are encoded is prefilled between two layers of the encoder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import reference
from checkpoints import find_checkpoint
from every_family import FAMILIES
from family_questions import questions
from inline_workers import InlineWorkers, as_sent
from media import Clip

from unifiedserve.config import EngineConfig, Order
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import PrefillRequest
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import Stage, read_placement
from unifiedserve.worker.outbox import Outbox

TOKENS = 4
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS)
MEDIUM, TEXT = 1, 2

Asker = Callable[[str, Order], InlineWorkers]


@pytest.fixture
def ask_both(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    clips: Callable[[int], Clip],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Asker]:
    """Ask about images and send a text when the encoder is at work on them; check both answers."""
    started: list[InlineWorkers] = []

    def ask(family: str, order: Order) -> InlineWorkers:
        checkpoint = find_checkpoint(tmp_path_factory, family)
        hf, processor = reference.load(checkpoint), load_processor(checkpoint)
        workers = InlineWorkers(read_placement("shared", ()), checkpoint, processor, EngineConfig.of(order=order))
        started.append(workers)
        asked = questions(FAMILIES[family], clips)
        take_requests, looked = Outbox.take_requests, list[bool]()

        def send_text_first(outbox: Outbox) -> list[PrefillRequest]:
            if len(looked) == 1:  # the encoder is past its first layer
                workers.submit(TEXT, as_sent(asked["text"], processor, clips, tmp_path), GREEDY, target=0.5)
            looked.append(workers.memory.status.joining("encode-prefill"))
            return take_requests(outbox)

        monkeypatch.setattr(Outbox, "take_requests", send_text_first)
        workers.submit(MEDIUM, as_sent(asked["image"], processor, clips, tmp_path), GREEDY, target=1e3)
        medium = workers.answer(MEDIUM)
        if not looked:
            workers.submit(TEXT, as_sent(asked["text"], processor, clips, tmp_path), GREEDY, target=0.5)
        expected = [hf.generate(asked[case].case, TOKENS) for case in ("image", "text")]
        assert [medium, workers.answer(TEXT)] == expected
        assert all(looked), "streams wait for the medium's prompt, whatever goes in between"
        assert set(workers.used_pages().values()) == {0}
        return workers

    yield ask
    for workers in started:
        workers.close()


def within_encoder(workers: InlineWorkers) -> bool:
    """Tell whether the text was prefilled while the encoder was at work."""
    (encode,) = [span for span in workers.spans if span.stage is Stage.ENCODE and span.name == "encode"]
    (text,) = [
        span
        for span in workers.spans
        if span.stage is Stage.PREFILL and span.name == "prefill" and span.requests == [TEXT]
    ]
    return encode.start < text.start < text.end < encode.end


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen2_vl", "internvl", "gemma3", "idefics3", "mllama"])
def test_a_text_does_not_wait_for_the_encoder(ask_both: Asker, family: str) -> None:
    assert within_encoder(ask_both(family, "slack"))


def test_first_come_first_served_lets_nothing_in_between(ask_both: Asker) -> None:
    assert not within_encoder(ask_both("qwen2_5_vl", "fcfs"))
