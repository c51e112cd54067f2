"""Every family with real files: greedy float32 answers equal transformers' generate.

One checkpoint of each kind of layout is asked over HTTP, the others by real workers in this process.
"""

import itertools
from pathlib import Path

import pytest
import reference
from checkpoints import find_checkpoint
from daemon import Daemon
from every_family import FAMILIES
from family_questions import KEPT_ROWS, Clips, questions
from inline_workers import InlineWorkers, as_sent
from questions import TOKENS, answer

from unifiedserve.config import EngineConfig
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models import registry
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import read_placement

CONFIG = EngineConfig.of(prefill_chunk_tokens=16, vision_threads=1)
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS)

OVER_HTTP = [
    "llama",  # text only
    "qwen3_5",  # grids of patches, and layers with a state
    "gemma3",  # pictures, whose tokens see each other
    "internvl",  # tiles, and videos of pictures
    "minicpmv4_6",  # views
    pytest.param("mllama", marks=pytest.mark.daemon(**KEPT_ROWS)),  # tiles, whose tokens are kept for decode
]
# One checkpoint for each processor that sees media; Qwen2.5-VL has the other tests to itself.
IN_PROCESS = [
    name
    for name in FAMILIES
    if FAMILIES[name].media and name in registry.FAMILIES and name not in ("qwen2_5_vl", "mllama", *OVER_HTTP)
]
LAYOUTS = ["qwen2_5_vl", "qwen3_5", "gemma3", "internvl", "minicpmv4_6", "mllama", "llama"]
PLACED = ["shared", "split", "ep-d", "ed-p", "e-p-d", "one", "2e+2p+2d", "3ep+d", "e+2pd"]
#: each family in one placement, in turn; all layouts in all placements on demand
SOME = list(zip([*IN_PROCESS, *LAYOUTS], itertools.cycle(PLACED), strict=False))
OTHERS = [pair for pair in itertools.product(LAYOUTS, PLACED) if pair not in SOME]
FAMILIES_AND_PLACEMENTS = [*SOME, *[pytest.param(*pair, marks=pytest.mark.long) for pair in OTHERS]]


@pytest.mark.daemon("one checkpoint for each kind of layout, by all stages as users have them", prefill_chunk_tokens=16)
@pytest.mark.parametrize("model", OVER_HTTP)
def test_answers_equal_generate(
    model: str, daemon: Daemon, clips: Clips, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hf = reference.load(find_checkpoint(tmp_path_factory, model))
    asked = questions(FAMILIES[model], clips)
    expected = {case: hf.generate(question.case, TOKENS) for case, question in asked.items()}
    assert {case: answer(daemon, question) for case, question in asked.items()} == expected
    daemon.wait_idle()


@pytest.mark.parametrize(("family", "placement"), FAMILIES_AND_PLACEMENTS)
def test_workers_here_give_the_same_answers(
    family: str, placement: str, clips: Clips, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Wherever the stages are, and whatever is called back beside them."""
    checkpoint = find_checkpoint(tmp_path_factory, family)
    hf, processor = reference.load(checkpoint), load_processor(checkpoint)
    workers = InlineWorkers(read_placement(placement, ()), checkpoint, processor, CONFIG)
    asked = questions(FAMILIES[family], clips)
    try:
        for uid, question in enumerate(asked.values(), 1):
            sent = as_sent(question, processor, clips, tmp_path)
            workers.submit(uid, sent, GREEDY)
            workers.submit(100 + uid, sent, GREEDY)
        workers.turn()
        for uid, _ in enumerate(asked, 101):
            workers.abort(uid)
            workers.turn()
        answers = {case: workers.answer(uid) for uid, case in enumerate(asked, 1)}
        assert answers == {case: hf.generate(question.case, TOKENS) for case, question in asked.items()}
        workers.run_until(lambda: len(workers.drained) == len(asked))
        assert set(workers.used_pages().values()) == {0}
    finally:
        workers.close()
