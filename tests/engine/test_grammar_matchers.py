"""Workers keep no matcher of an answer that goes on elsewhere, or has ended, and load nothing before there is one."""

import gc
import queue
from pathlib import Path
from typing import Any

import pytest
from checkpoints import find_checkpoint
from inline_workers import Asked, apart

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import GrammarAhead
from unifiedserve.sampling.grammar import Matcher, regex_grammar
from unifiedserve.worker import assembly


def matchers() -> int:
    gc.collect()
    return sum(isinstance(each, Matcher) for each in gc.get_objects())


@pytest.mark.parametrize("placement", ["shared", "monolithic"])
def test_matchers_go_with_their_answers(tmp_path_factory: pytest.TempPathFactory, placement: str) -> None:
    checkpoint = find_checkpoint(tmp_path_factory, "qwen2_5_vl")
    before = matchers()
    with apart(checkpoint, EngineConfig.of(vision_threads=1), CPU, placement) as workers:
        for uid in range(1, 6):
            sampling = SamplingParams(temperature=0, max_tokens=4, grammar=regex_grammar(f"[a-z ]{{{uid + 20}}}"))
            workers.submit(uid, Asked([10, 11, 12], [], []), sampling)
            workers.run_until(lambda uid=uid: uid in workers.ended)
            workers.abort(uid)
        workers.run_until(lambda: workers.drained >= set(range(1, 6)))
        assert matchers() == before


@pytest.mark.parametrize("told", [True, False])
def test_a_tokenizer_is_loaded_once_and_not_before_a_grammar(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    checkpoint = find_checkpoint(tmp_path_factory, "qwen2_5_vl")
    loaded: queue.Queue[Path] = queue.Queue()
    load = assembly.load_tokenizer

    def seen(folder: Path) -> Any:
        loaded.put(folder)
        return load(folder)

    monkeypatch.setattr(assembly, "load_tokenizer", seen)
    with apart(checkpoint, EngineConfig.of(vision_threads=1), CPU) as workers:
        workers.submit(1, Asked([10, 11, 12], [], []), SamplingParams(temperature=0, max_tokens=4))
        workers.run_until(lambda: 1 in workers.ended)
        assert loaded.empty()
        if told:
            for name in "vision", "encode-prefill", "decode":
                workers.send(name, GrammarAhead())
                workers.send(name, GrammarAhead())
            workers.turn()
            assert [loaded.get(), loaded.get()] == [checkpoint] * 2  # of prefill and decode
        sampling = SamplingParams(temperature=0, max_tokens=4, grammar=regex_grammar("[a-z ]{20}"))
        workers.submit(2, Asked([10, 11, 12], [], []), sampling)
        workers.run_until(lambda: 2 in workers.ended)
    assert loaded.qsize() == (0 if told else 2)
