"""Answers that must follow a schema, an expression or a grammar do, whatever the weights and whatever happens."""

import concurrent.futures
import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import msgspec
import openai
import pytest
from completions import PLACEMENTS, SHARED_FIRST, TIGHT_BUFFERS, ask, metric
from daemon import Daemon
from media import Clip, text_part, video_part

pytestmark = pytest.mark.daemon("grammars are compiled in the engine and followed in the workers")
Clips = Callable[[int], Clip]


class Scene(msgspec.Struct, forbid_unknown_fields=True):
    """What `SCHEMA` describes; msgspec is the reference that reads the answers."""

    place: str
    people: list[bool]
    mood: str | None = None
    size: int = 0


SCHEMA = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "maxLength": 12},
        "people": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
        "mood": {"enum": ["calm", "wild é", None]},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["place", "people"],
    "additionalProperties": False,
}
TIGHT = {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}}


def constrained(daemon: Daemon, *parts: dict[str, Any], seed: int = 0, **options: Any) -> Any:
    body = {"return_token_ids": True, **options.pop("extra_body", {})}
    parts = parts or (text_part("Describe it."),)
    return ask(daemon, *parts, **{"temperature": 1, "seed": seed, "max_tokens": 400, "extra_body": body, **options})


def check(choice: Any) -> Scene:
    assert choice.finish_reason == "stop"
    scene = msgspec.json.decode(choice.message.content, type=Scene)
    assert len(scene.place) <= 12
    assert 1 <= len(scene.people) <= 4
    assert scene.mood in ("calm", "wild é", None)
    assert 0 <= scene.size <= 99
    return scene


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_choice_fits_the_schema(daemon: Daemon, clips: Clips, placement: str) -> None:
    for parts in ([text_part("Describe it.")], [video_part(clips(8)), text_part("What happens?")]):
        choices = constrained(daemon, *parts, n=6, extra_body=TIGHT).choices
        scenes = [check(choice) for choice in choices]
        assert len({scene.place for scene in scenes}) > 1
    daemon.wait_idle()


def test_all_ways_to_ask_for_json(daemon: Daemon) -> None:
    asked = {"name": "scene", "schema": SCHEMA, "strict": True}
    check(constrained(daemon, response_format={"type": "json_schema", "json_schema": asked}).choices[0])
    check(constrained(daemon, extra_body={"guided_json": SCHEMA}).choices[0])
    check(
        constrained(daemon, extra_body={"guided_json": json.dumps(SCHEMA), "guided_whitespace_pattern": " "}).choices[0]
    )
    for body in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        text = constrained(daemon, extra_body=body, max_tokens=800, temperature=0.7, n=4).choices
        whole = [json.loads(choice.message.content) for choice in text if choice.finish_reason == "stop"]
        assert all(isinstance(value, dict) for value in whole)


@pytest.mark.parametrize("spelling", ["guided_{}", "structured_outputs"])
def test_choice_regex_and_grammar(daemon: Daemon, spelling: str) -> None:

    def answers(kind: str, wanted: Any) -> list[str]:
        body = {spelling.format(kind): wanted} if "{}" in spelling else {spelling: {kind: wanted}}
        choices = constrained(daemon, n=8, extra_body=body, max_tokens=300).choices
        assert {choice.finish_reason for choice in choices} == {"stop"}
        return [choice.message.content for choice in choices]

    options = ["yes", "no", 'per"haps\n', "é 😀"]
    assert set(answers("choice", options)) <= set(options)
    assert all(re.fullmatch(r"[a-c]{2,5}-\d{3}", text) for text in answers("regex", r"[a-c]{2,5}-\d{3}"))
    lark = 'start: "(" start ")" | "x"~1..3'
    gbnf = 'root ::= "(" root ")" | "x" ("x" "x"?)?'
    for grammar in (lark, gbnf):
        for text in answers("grammar", grammar):
            depth = text.count("(")
            assert re.fullmatch(r"\(*x{1,3}\)*", text)
            assert text.count(")") == depth


def test_greedy_and_penalties_and_truncation_stay_inside(daemon: Daemon) -> None:
    check(constrained(daemon, temperature=0, extra_body=TIGHT).choices[0])
    odd = {**TIGHT, "top_k": 1, "repetition_penalty": 3.0, "min_tokens": 200, "min_p": 0.5}
    check(constrained(daemon, temperature=2, frequency_penalty=2, extra_body=odd).choices[0])


def test_stop_and_length_still_cut(daemon: Daemon) -> None:
    whole = constrained(daemon, extra_body=TIGHT).choices[0].message.content
    stopped = constrained(daemon, extra_body=TIGHT, stop='"people"').choices[0]
    assert stopped.finish_reason == "stop"
    assert stopped.message.content == whole[: whole.index('"people"')]
    cut = constrained(daemon, extra_body=TIGHT, max_tokens=5).choices[0]
    assert cut.finish_reason == "length"
    assert whole.startswith(cut.message.content)


@pytest.mark.second_daemon(**TIGHT_BUFFERS)
@pytest.mark.parametrize("placement", SHARED_FIRST)
def test_preempted_answers_are_the_same(daemon: Daemon, second_daemon: Daemon, placement: str) -> None:
    long = {"type": "array", "items": {"enum": ["a b c d e f", "g h i"]}, "minItems": 25, "maxItems": 25}
    body = {"structured_outputs": {"json": long, "disable_any_whitespace": True}, "return_token_ids": True}

    def answer(daemon: Daemon, seed: int) -> str:
        return constrained(daemon, seed=seed, extra_body=body, max_tokens=400).choices[0].message.content

    expected = [answer(daemon, seed) for seed in range(4)]
    assert {len(json.loads(text)) for text in expected} == {25}
    before = metric(second_daemon, "num_preemptions_total")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda seed: answer(second_daemon, seed), range(4))) == expected
    assert metric(second_daemon, "num_preemptions_total") > before
    second_daemon.wait_idle()


@pytest.mark.parametrize("instance", ["encode-prefill", "decode"])
def test_a_killed_worker_does_not_break_the_grammar(daemon: Daemon, instance: str) -> None:
    long = {"type": "array", "items": {"enum": ["a b c", "g h i"]}, "minItems": 30, "maxItems": 30}
    body = {"guided_json": long, "guided_whitespace_pattern": ""}
    expected = constrained(daemon, seed=5, extra_body=body).choices[0].message.content
    assert len(json.loads(expected)) == 30
    chunks = iter(constrained(daemon, seed=5, stream=True, extra_body=body))
    text = next(chunks).choices[0].delta.content or ""
    os.kill(daemon.engine.observation.worker_pids()[instance], signal.SIGKILL)
    text += "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == expected
    daemon.wait_idle()


HOSTILE_PATTERNS = [{"pattern": f".*a.{{{i}}}", "type": "string"} for i in range(40)]
HOSTILE_REFS = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(5000)} | {"a5000": {"type": "null"}}
BAD = [
    ({"guided_json": {"type": "objekt"}}, "guided_json", "objekt"),
    ({"guided_json": {"$ref": "http://127.0.0.1/x"}}, "guided_json", "127.0.0.1"),
    ({"guided_json": {"$ref": "#"}}, "guided_json", "no text"),
    ({"guided_json": {"minimum": 5, "maximum": 3, "type": "integer"}}, "guided_json", "minimum"),
    ({"guided_json": {"$ref": "#/$defs/a0", "$defs": HOSTILE_REFS}}, "guided_json", "nests too deep"),
    ({"guided_json": {"allOf": HOSTILE_PATTERNS}}, "guided_json", "0.5 s"),
    ({"guided_regex": "a("}, "guided_regex", "regex"),
    ({"guided_regex": "(?=a)b"}, "guided_regex", "regex"),
    ({"structured_outputs": {"grammar": 'start: "a" foo'}}, "structured_outputs.grammar", "foo"),
    ({"structured_outputs": {"grammar": "start: start"}}, "structured_outputs.grammar", "no text"),
]


@pytest.mark.parametrize(("body", "param", "reason"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_compiled_is_refused_with_the_reason(
    daemon: Daemon, body: dict[str, Any], param: str, reason: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=reason) as refused:
        constrained(daemon, extra_body=body)
    assert refused.value.param == param
    check(constrained(daemon, extra_body=TIGHT).choices[0])


def test_a_grammar_that_fails_later_ends_its_own_request_only(daemon: Daemon) -> None:
    explosive = "start: a0\n" + "".join(f"a{i}: a{i + 1} a{i + 1}\n" for i in range(60)) + 'a60: "a"\n'
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        other = pool.submit(constrained, daemon, n=4, extra_body=TIGHT)
        with pytest.raises(openai.BadRequestError, match="cannot go on"):
            constrained(daemon, extra_body={"guided_grammar": explosive})
        for choice in other.result().choices:
            check(choice)
    daemon.wait_idle()
