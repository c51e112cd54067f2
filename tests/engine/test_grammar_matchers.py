"""Workers keep no matcher of an answer that goes on elsewhere, or has ended."""

import gc

import pytest
from checkpoints import find_checkpoint
from inline_workers import Asked, apart

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.sampling.grammar import Matcher, regex_grammar


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
