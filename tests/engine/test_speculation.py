"""Answers with speculative decoding are those without, whatever a request asks for, and they take fewer steps."""

import concurrent.futures
from typing import Any

import pytest
from checkpoints import find_checkpoint
from completions import ask, metric
from daemon import Daemon
from deferred import DeferredDevice
from inline_workers import Asked, apart
from media import text_part

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.placement import Stage

pytestmark = [
    pytest.mark.daemon("workers that decode, with drafts"),
    pytest.mark.second_daemon(speculative_tokens=0),
]

FEW = {str(token): 100 for token in range(70, 73)}  # tokens to say: a text of them repeats itself
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, repeating itself": {"logit_bias": FEW},
    "sampled": {"temperature": 0.7, "seed": 1},
    "sampled, repeating itself": {"temperature": 0.7, "seed": 1, "logit_bias": FEW},
    "truncated": {"temperature": 1.5, "top_p": 0.9, "seed": 2, "logit_bias": FEW},
    "penalised": {"frequency_penalty": 0.1, "presence_penalty": 0.2, "logit_bias": FEW},
    "repetition penalised": {"logit_bias": FEW, "extra_body": {"repetition_penalty": 1.3}},
    "scored": {"logprobs": True, "top_logprobs": 4, "logit_bias": FEW},
    "several": {"n": 3, "temperature": 1.0, "seed": 3, "logit_bias": FEW},
    "stopped by a token": {"temperature": 1.0, "seed": 4, "logit_bias": FEW, "extra_body": {"stop_token_ids": [71]}},
    "not stopped too early": {
        "temperature": 1.0,
        "seed": 4,
        "logit_bias": FEW,
        "extra_body": {"stop_token_ids": [71], "min_tokens": 20},
    },
    **{f"{tokens} tokens": {"logit_bias": FEW, "max_tokens": tokens} for tokens in range(9, 14)},
}


def answers(daemon: Daemon, kind: str, text: str = "What is a river?") -> list[dict[str, Any]]:
    options = KINDS[kind]
    extra = {"ignore_eos": True, "return_token_ids": True, **options.get("extra_body", {})}
    completion = ask(daemon, text_part(text), **{"max_tokens": 60, **options, "extra_body": extra})
    return [choice.model_dump() for choice in completion.choices]


def drafted_and_accepted(daemon: Daemon) -> tuple[float, float]:
    daemon.wait_idle()
    drafted, accepted = (metric(daemon, f"spec_decode_num_{what}_tokens_total") for what in ("draft", "accepted"))
    return drafted, accepted


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_the_same(daemon: Daemon, second_daemon: Daemon, kind: str) -> None:
    _, before = drafted_and_accepted(daemon)
    assert answers(daemon, kind) == answers(second_daemon, kind)
    if "logit_bias" in KINDS[kind] and "penalised" not in kind and "stopped" not in kind:
        drafted, accepted = drafted_and_accepted(daemon)
        assert drafted >= accepted > before
    assert drafted_and_accepted(second_daemon) == (0, 0)


def test_a_stop_string_cuts_drafts_off(daemon: Daemon, second_daemon: Daemon) -> None:
    whole = answers(second_daemon, "sampled, repeating itself")[0]["message"]["content"]
    for stop in (whole[20:23], whole[31:35]):
        cut = [
            ask(each, text_part("What is a river?"), max_tokens=60, stop=stop, **KINDS["sampled, repeating itself"])
            for each in (daemon, second_daemon)
        ]
        assert [each.choices[0].message.content for each in cut] == [whole[: whole.index(stop)]] * 2
        daemon.wait_idle()


def test_streams_side_by_side_come_in_order(daemon: Daemon, second_daemon: Daemon) -> None:
    options = {**KINDS["sampled, repeating itself"], "max_tokens": 80}
    questions = ["What is a river?", "Tell me a story.", "Sing.", "And then?"]

    def stream(daemon: Daemon, text: str) -> list[int]:
        extra = {"ignore_eos": True, "return_token_ids": True}
        chunks = ask(daemon, text_part(text), **options, stream=True, extra_body=extra)
        return [token for chunk in chunks for choice in chunk.choices for token in choice.token_ids or ()]

    _, before = drafted_and_accepted(daemon)
    with concurrent.futures.ThreadPoolExecutor(len(questions)) as pool:
        came = list(pool.map(lambda text: stream(daemon, text), questions))
    assert came == [stream(second_daemon, text) for text in questions]
    assert drafted_and_accepted(daemon)[1] > before


@pytest.mark.daemon(kv_cache_mib=1, prefill_chunk_tokens=32, dtype="bfloat16")
@pytest.mark.second_daemon(kv_cache_mib=64, prefill_chunk_tokens=512, dtype="bfloat16", speculative_tokens=0)
def test_preempted_answers_are_the_same(daemon: Daemon, second_daemon: Daemon) -> None:
    kinds = ["greedy, repeating itself", "sampled, repeating itself", "truncated", "scored"]
    long = {kind: {**KINDS[kind], "max_tokens": 200} for kind in kinds}

    def answer(daemon: Daemon, kind: str) -> list[dict[str, Any]]:
        extra = {"ignore_eos": True, "return_token_ids": True}
        completion = ask(daemon, text_part(kind), **long[kind], extra_body=extra)
        return [choice.model_dump() for choice in completion.choices]

    before = metric(daemon, "num_preemptions_total")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        came = list(pool.map(lambda kind: answer(daemon, kind), 2 * kinds))
    assert came == 2 * [answer(second_daemon, kind) for kind in kinds]
    assert metric(daemon, "num_preemptions_total") > before
    assert drafted_and_accepted(daemon)[1] > 0


def steps(tmp_path_factory: pytest.TempPathFactory, model: str, device: Device, most: int = 7) -> list[Any]:
    """The tokens of an answer that repeats itself, how many steps decode took for them, and its drafts."""
    config = EngineConfig.of(vision_threads=1, speculative_tokens=most)
    params = SamplingParams(temperature=0, logit_bias={20: 100}, max_tokens=41, ignore_eos=True)
    with apart(find_checkpoint(tmp_path_factory, model), config, device) as workers:
        workers.submit(1, Asked([20, 21, 22], [], []), params)
        answer = workers.answer(1)
        spans = [span for span in workers.spans if span.stage is Stage.DECODE and span.name == "decode"]
    assert sum(span.tokens for span in spans) == len(answer) - 1  # the first one is prefill's
    return [answer, len(spans), sum(span.drafted for span in spans), sum(span.accepted for span in spans)]


def test_a_trace_shows_that_repetition_takes_fewer_steps(tmp_path_factory: pytest.TempPathFactory) -> None:
    expected = [20] * 41
    answer, taken, drafted, accepted = steps(tmp_path_factory, "qwen2_5_vl", CPU)
    assert answer == expected
    assert taken <= 10
    assert taken + accepted == 40
    assert drafted >= accepted
    assert steps(tmp_path_factory, "qwen2_5_vl", CPU, most=0) == [expected, 40, 0, 0]


@pytest.mark.parametrize(
    ("model", "device"),
    [("qwen2_5_vl", DeferredDevice()), ("qwen3_5_text", CPU)],
    ids=["device that goes ahead", "state that cannot be taken back"],
)
def test_others_are_left_out(tmp_path_factory: pytest.TempPathFactory, model: str, device: Device) -> None:
    assert steps(tmp_path_factory, model, device) == [[20] * 41, 40, 0, 0]
