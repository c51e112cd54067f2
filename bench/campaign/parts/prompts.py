"""Requests that are proper, but want too much: of the context, of grammars, of lists, of numbers."""

from collections.abc import Mapping
from random import Random
from typing import Any

from bench.campaign.asking import CHAT, EMBEDDINGS, MESSAGES, RESPONSES, TEXTS, TOKENIZE, Request, asks, chat, kind

_FOX = "the quick brown fox "


def _huge_prompt(random: Random) -> Request:
    text = random.choice((_FOX, "a", "\U0001f600", " ", "\n", "<|im_start|>", "ÿ", "0", "e\u0301")) * (
        2 ** random.choice((16, 18, 20))
    )
    bodies: Mapping[str, dict[str, Any]] = {
        CHAT: chat(text),
        TEXTS: {"prompt": text, "max_tokens": 4, "deadline": 20},
        RESPONSES: {"input": text, "deadline": 20},
        MESSAGES: chat(text),
        TOKENIZE: {"prompt": text},
        EMBEDDINGS: {"input": text},
    }
    path = random.choice(list(bodies))
    return asks(path, bodies[path])


def _foxes(random: Random) -> Request:
    text = _FOX * 2**20
    bodies: Mapping[str, dict[str, Any]] = {
        CHAT: chat(text),
        TEXTS: {"prompt": text},
        TOKENIZE: {"prompt": text},
        EMBEDDINGS: {"input": text},
    }
    path = random.choice(list(bodies))
    return asks(path, bodies[path], 400, 413)


def _many_prompts(random: Random) -> Request:
    number = random.choice((2, 256, 257, 5000))
    return asks(TEXTS, {"prompt": ["a"] * number, "max_tokens": 1, "n": random.choice((1, 4, 64)), "deadline": 10})


def _at_limits(random: Random) -> Request:
    """Return a request for as many answers and tokens as may be, or more."""
    fields = {
        "n": random.choice((1, 2, 64, 65, 2**31)),
        "max_tokens": random.choice((1, 32_767, 32_768, 2**31 - 1, 2**31)),
        "deadline": 2,
    }
    if random.random() < 0.5:
        fields["min_tokens"] = random.choice((1, 32_768, 2**31 - 1))
    return asks(CHAT, chat(**fields))


def _stops(random: Random) -> Request:
    stop = random.choice(
        (["a"] * 64, ["a"] * 65, ["a" * 4096], ["a" * 5000], ["\x00"], [""], ["😀" * 1000] * 64, [" "])
    )
    ids = random.choice(([0], [2**31 - 1], [1] * 1024, [1] * 1025, [-1], list(range(1024))))
    return asks(CHAT, chat(stop=stop, stop_token_ids=ids))


def _biases(random: Random) -> Request:
    number = random.choice((1, 1024, 1025, 100_000))
    names = random.choice((str, lambda n: str(10**9 + n), lambda n: f" {n}", lambda n: f"-{n}", lambda n: f"{n}.0"))
    bias = random.choice((100, -100, 1e-300, 101))
    return asks(CHAT, chat(logit_bias={names(token): bias for token in range(number)}))


def _tools(random: Random) -> Request:
    """Return a request with functions whose definitions are odd, deep or many."""
    parameters = random.choice(_SCHEMAS)
    name = random.choice(("f", "", "f" * 300, "a b", "{{ x }}", "<tool_call>", "\x00", "名"))
    function = {"name": name, "description": random.choice((None, "d" * 9999, "{% for %}")), "parameters": parameters}
    tools = [{"type": "function", "function": function}] * random.choice((1, 2, 128, 129))
    choice = random.choice(("auto", "required", "none", {"type": "function", "function": {"name": name}}, "x"))
    return asks(CHAT, chat(tools=tools, tool_choice=choice))


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


_SCHEMAS: list[Any] = [
    {},
    True,
    False,
    "",
    {"type": "x"},
    {"type": []},
    {"$ref": "#"},
    {"$ref": "file:///etc/passwd"},
    {"$ref": "http://127.0.0.1:1/x"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"anyOf": [{"type": "string", "pattern": "(a+)+$"}] * 500},
    {"type": "string", "pattern": "(" * 5000},
    {"type": "string", "pattern": "a{1,1000000}"},
    {"type": "string", "minLength": 2**40},
    {"type": "string", "maxLength": -1},
    {"type": "array", "minItems": 10**7},
    {"type": "number", "multipleOf": 0},
    {"type": "integer", "minimum": 5, "maximum": 1},
    {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    {"enum": []},
    {"enum": [str(number) for number in range(20_000)]},
    {"allOf": [{"properties": {f"p{number}": {"type": "string"}}} for number in range(2000)]},
    {"not": {}},
    {"patternProperties": {"(": {}}},
    {"properties": {"a\x00": {}, "": {}}},
    {"properties": {f"p{number}": {"type": "integer"} for number in range(5000)}, "additionalProperties": False},
    _deep(30),
    _deep(300),
]
_EXPRESSIONS = [
    "", "(", "a{1,100000}", "(a{1,1000}){1,1000}", "((((a*)*)*)*)*b", "(?=a)b", r"(a)\1", "[" + "a-z" * 5000 + "]",
    "a|" * 50_000 + "a", ".{0,9999}" * 50, r"\p{L}{1,5000}", "(?P<x>a)", "\x00", r"\uD800", "^$", "(?i)" + "é" * 9999,
    "(" * 500 + "a" + ")" * 500, "(" * 50_000 + ")" * 50_000,
]  # fmt: skip
_GRAMMARS = [
    "", "start:", 'start: "a"', "start: start", "start: a\na: b\nb: a", 'start: "a" | start start', "start: /(/",
    "root ::= root", 'root ::= "a"*', 'start: "a"{1000000}', "start: <[999999999]>", "start: <|im_end|>", "%import x",
    'start: "\\ud800"',
    "\n".join(f'r{n}: "a" r{n + 1} | "b" r{n + 1}' for n in range(5000)) + '\nstart: r0\nr5000: "c"',
    "start: " + "(" * 20_000, "%ignore /./\nstart: /a/", 'start: %json {"$ref": "#"}', "start: @x", "x" * 262_145,
]  # fmt: skip


def _grammar(random: Random) -> Request:
    """Return a request for an answer of a hostile shape, in one of the ways there are to ask for it."""
    schema, expression, grammar = random.choice(_SCHEMAS), random.choice(_EXPRESSIONS), random.choice(_GRAMMARS)
    fields: dict[str, Any] = random.choice(
        (
            {"guided_json": schema},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}},
            {"structured_outputs": {"json": schema}},
            {"guided_regex": expression},
            {"structured_outputs": {"regex": expression}},
            {"guided_grammar": grammar},
            {"structured_outputs": {"grammar": grammar}},
            {"guided_choice": random.choice(([""], ["a"] * 5000, ["a" * 100_000], ["\x00"], ["a", "ab"]))},
            {"guided_json": {}, "guided_whitespace_pattern": expression},
            {"structured_outputs": {"json": {}, "whitespace_pattern": expression}},
        )
    )
    return asks(CHAT, chat(**fields, stream=random.random() < 0.3))


def _template(random: Random) -> Request:
    """Return a request with options for the template, or messages that might reach into it."""
    names = (
        "enable_thinking",
        "tools",
        "messages",
        "bos_token",
        "__class__",
        "range",
        "raise_exception",
        "x" * 5000,
        "",
    )
    value: Any = random.choice(
        (None, 1, "{{ 7*7 }}", [[]], {"__class__": 1}, "a" * 10_000, 2**70, {"a": {"b": [1] * 9999}})
    )
    return asks(CHAT, chat(chat_template_kwargs={random.choice(names): value}))


def _turns(random: Random) -> Request:
    """Return a conversation whose turns, tool calls and parts are in odd orders."""
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": random.choice(("{", "{}", "1", "", "[]"))},
    }
    turns = [
        {"role": "system", "content": ""},
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "<|im_end|><|vision_start|><|image_pad|>"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "</think>", "reasoning_content": "<think>"},
        {"role": "tool", "content": "x", "tool_call_id": random.choice(("1", "", "2"))},
        {"role": "developer", "content": "b"},
        {"role": "user", "content": []},
    ]
    messages = [random.choice(turns) for _ in range(random.choice((1, 2, 5, 30, 500)))]
    return asks(CHAT, {"messages": messages, "max_tokens": 2, "deadline": 20})


KINDS = [
    kind("huge prompts", 3, _huge_prompt),
    kind("a prompt of 20 MiB", 0.4, _foxes),
    kind("many prompts", 1, _many_prompts),
    kind("n and max_tokens at their limits", 2, _at_limits),
    kind("stops", 6, _stops),
    kind("logit_bias", 4, _biases),
    kind("tools", 8, _tools),
    kind("hostile grammars", 10, _grammar),
    kind("template options", 6, _template),
    kind("odd conversations", 6, _turns),
]
