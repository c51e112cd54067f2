"""Where streams are decoded by the worker that encodes, a device goes on with both: nobody can tell but by the time."""

import re
from collections.abc import Callable
from pathlib import Path

import deferred_device
import pytest
from checkpoints import find_checkpoint
from deferred import BatchMark, DeferredDevice
from every_family import FAMILIES
from family_questions import questions
from inline_workers import InlineWorkers, apart, as_sent
from media import Clip
from taken_pages import taken_at_once

from unifiedserve.config import DualStreams, EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Embeddings
from unifiedserve.worker.language.decode_ahead import DecodeAhead
from unifiedserve.worker.language.encode import EncodedBatch, EncodeStage
from unifiedserve.worker.language.prefill import PrefillStage

CONFIG = EngineConfig.of(prefill_chunk_tokens=16, vision_threads=1, encode_budget_tokens=1)
STREAM = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
ANSWER = SamplingParams(temperature=0, max_tokens=8)

Ask = Callable[..., list[list[int]]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is done in turn: batches of the encoder begun and finished, prefill, steps of decode launched."""
    done: list[str] = []

    def noting(owner: type, name: str, word: str) -> None:
        method = getattr(owner, name)

        def noted(*given: object) -> object:
            done.append(word)
            return method(*given)

        monkeypatch.setattr(owner, name, noted)

    noting(EncodeStage, "begin", "begin")
    noting(EncodeStage, "finish", "finish")
    noting(PrefillStage, "finish", "prefill")
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

    def answers(
        device: Device,
        meanwhile: Callable[[InlineWorkers], object] = lambda workers: None,
        streams: DualStreams = "auto",
        placement: str = "monolithic",
    ) -> list[list[int]]:
        with apart(checkpoint, CONFIG.changed(dual_streams=streams), device, placement) as workers:
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


def in_turn(events: list[str], step: str) -> str:
    """Return batches of the encoder, of which there is one at a time, as brackets, and a kind of steps as dots."""
    batches = "".join({"begin": "(", "finish": ")", step: "."}.get(event, "") for event in events)
    assert "((" not in batches.replace(".", "")
    assert batches.count("(") == batches.count(")") > 1
    return re.sub(r"\.+", ".", batches)


def test_streams_go_on_while_a_video_is_encoded(ask: Ask, events: list[str]) -> None:
    expected = ask(CPU)
    events.clear()
    assert ask(DeferredDevice()) == expected
    assert "(.)" in in_turn(events, "decode")


def test_without_dual_streams_they_take_turns(ask: Ask, events: list[str]) -> None:
    expected = ask(CPU)
    events.clear()
    assert ask(DeferredDevice(), streams="off") == expected
    assert "(.)" not in in_turn(events, "decode")


@pytest.mark.parametrize("placement", ["shared", "ep-d"])
def test_a_text_is_prefilled_while_a_video_is_encoded(
    ask: Ask, events: list[str], placement: str, clips: Callable[[int], Clip], tmp_path: Path
) -> None:
    expected = ask(CPU)
    events.clear()

    def ask_again(workers: InlineWorkers) -> None:
        workers.run_until(lambda: events.count("begin") > events.count("finish"))
        text = questions(FAMILIES["qwen2_5_vl"], clips)["text"]
        workers.submit(3, as_sent(text, workers.processor, clips, tmp_path), ANSWER)
        workers.answer(3)

    assert ask(DeferredDevice(), ask_again, "on", placement) == expected
    assert "(.)" in in_turn(events, "prefill")


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

    monkeypatch.setattr(BatchMark, "wait", lambda mark: None)
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
