"""Where streams are decoded by the worker that encodes, a device goes on with both: nobody can tell but by the time."""

from collections.abc import Callable
from pathlib import Path

import deferred_device
import pytest
from checkpoints import find_checkpoint
from deferred import BatchMark, DeferredDevice
from every_family import FAMILIES
from inline_workers import InlineWorkers, apart, as_sent
from media import Clip
from test_families import questions
from test_late_device import taken_at_once

from unifiedserve.config import EngineConfig
from unifiedserve.device import Device
from unifiedserve.device.cpu import CPU
from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Embeddings
from unifiedserve.worker.language.decode_ahead import DecodeAhead
from unifiedserve.worker.language.encode import EncodedBatch, EncodeStage

CONFIG = EngineConfig.of(prefill_chunk_tokens=16, vision_threads=1, encode_budget_tokens=1)
STREAM = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
ANSWER = SamplingParams(temperature=0, max_tokens=8)

Ask = Callable[..., list[list[int]]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is done in turn: batches of the encoder begun and finished, steps of decode launched."""
    done: list[str] = []

    def noting(owner: type, name: str, word: str) -> None:
        method = getattr(owner, name)

        def noted(*given: object) -> object:
            done.append(word)
            return method(*given)

        monkeypatch.setattr(owner, name, noted)

    noting(EncodeStage, "begin", "begin")
    noting(EncodeStage, "finish", "finish")
    noting(DecodeAhead, "launch", "decode")
    return done


@pytest.fixture
def ask(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    clips: Callable[[int], Clip],
    monkeypatch: pytest.MonkeyPatch,
) -> Ask:
    """Return a function that asks about a video while a text is streamed; somebody writes to pages that come free."""
    monkeypatch.setattr(DevicePages, "release", taken_at_once(DevicePages.release))
    checkpoint = find_checkpoint(tmp_path_factory, "qwen2_5_vl")
    asked = questions(FAMILIES["qwen2_5_vl"], clips)

    def answers(device: Device, meanwhile: Callable[[InlineWorkers], object] = lambda workers: None) -> list[list[int]]:
        with apart(checkpoint, CONFIG, device, "monolithic") as workers:
            workers.submit(1, as_sent(asked["text"], workers.processor, clips, tmp_path), STREAM)
            workers.run_until(lambda: len(workers.tokens[1]) > 2)
            workers.submit(2, as_sent(asked["video"], workers.processor, clips, tmp_path), ANSWER)
            meanwhile(workers)
            found = [workers.answer(1), workers.answer(2) if 2 not in workers.drained else []]
            for uid in {1, 2} - workers.drained:
                workers.abort(uid)
            workers.run_until(lambda: {1, 2} <= workers.drained)
            assert set(workers.used_pages().values()) == {0}
            return found

    return answers


def test_streams_go_on_while_a_video_is_encoded(ask: Ask, events: list[str]) -> None:
    expected = ask(CPU)
    events.clear()
    assert ask(DeferredDevice()) == expected
    batches = "".join({"begin": "(", "finish": ")", "decode": "."}[event] for event in events)
    assert "(.)" in batches.replace("..", ".")
    assert "((" not in batches
    assert batches.count("(") == batches.count(")") > 1


def test_answers_would_be_wrong_if_pages_were_given_back_before_they_are_read(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is the end of a batch: where a batch is held to be done too early, that is enough."""
    expected = ask(CPU)
    monkeypatch.setattr(BatchMark, "done", lambda mark: True)
    assert ask(DeferredDevice()) == expected
    finish = EncodeStage.finish

    def early(stage: EncodeStage, batch: EncodedBatch) -> list[Embeddings]:
        with deferred_device.process("nothing is queued here"):
            return finish(stage, batch)

    monkeypatch.setattr(EncodeStage, "finish", early)
    assert ask(DeferredDevice()) != expected


def test_a_client_that_leaves_while_its_video_is_in_the_encoder(ask: Ask, events: list[str]) -> None:
    expected, _ = ask(CPU)
    events.clear()

    def leave(workers: InlineWorkers) -> None:
        workers.run_until(lambda: events.count("begin") > events.count("finish"))
        workers.abort(2)
        workers.run_until(lambda: 2 in workers.drained)

    assert ask(DeferredDevice(), leave) == [expected, []]
