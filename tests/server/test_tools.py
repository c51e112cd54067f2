"""Tool calls and reasoning: read out of answers in any pieces, demanded by grammars, sent back in later turns."""

import json
from typing import Any

import httpx
import openai
import pytest
from chat_requests import PATH, stream
from hypothesis import given
from hypothesis import strategies as st
from refusals import error_of
from scripted_app import connected, listening, question
from weather_tools import ARGUMENTS, CALL, OTHER, TOOLS, answering, wrapped

from unifiedserve.server.answers.parser import AnswerParser, Arguments, Called, Piece, Said, Thought
from unifiedserve.server.answers.tool_formats import FORMATS, detect_format


def read(parser: AnswerParser, parts: list[str]) -> list[Piece]:
    """All pieces, with neighbours of one kind joined."""
    joined: list[Piece] = []
    for number, part in enumerate(parts, start=1):
        for piece in parser.feed(part, number == len(parts)):
            if isinstance(piece, Arguments):
                call = joined[-1]
                assert isinstance(call, Called)
                joined[-1] = call._replace(arguments=call.arguments + piece.text)
            elif joined and not isinstance(piece, Called) and type(joined[-1]) is type(piece):
                joined[-1] = type(piece)(joined[-1].text + piece.text)
            else:
                joined.append(piece)
    return joined


PLACE, NOW = Called("weather", ARGUMENTS), Called("time", "{}")
LLAMA = json.dumps({"name": "weather", "parameters": CALL["arguments"]}, ensure_ascii=False)
ANSWERS: list[tuple[str, str, list[Piece]]] = [
    ("hermes", "It rains.", [Said("It rains.")]),
    ("hermes", wrapped(CALL), [PLACE]),
    ("hermes", f"Let me see.\n{wrapped(CALL)}\n{wrapped(OTHER)}", [Said("Let me see.\n"), PLACE, NOW]),
    ("hermes", wrapped(CALL).removesuffix("</tool_call>"), [PLACE]),
    ("hermes", "a <tool_call>no json</tool_call> b", [Said("a <tool_call>no json</tool_call> b")]),
    ("hermes", '<tool_call>{"name": "we', [Said('<tool_call>{"name": "we')]),
    ("hermes", "a < b <tool", [Said("a < b <tool")]),
    ("mistral", f"[TOOL_CALLS] [{json.dumps(CALL, ensure_ascii=False)}, {json.dumps(OTHER)}]", [PLACE, NOW]),
    ("mistral", "[1] is a list", [Said("[1] is a list")]),
    ("hermes", wrapped(CALL | {"id": "}"}) + wrapped(OTHER), [PLACE, NOW]),
    ("hermes", wrapped(dict(reversed(CALL.items()))), [PLACE]),
    ("hermes", wrapped({"name": "time"}), [NOW]),
    ("hermes", wrapped(CALL | {"arguments": ARGUMENTS}), [PLACE]),
    ("llama3_json", LLAMA, [PLACE]),
    ("llama3_json", f"<|python_tag|>{LLAMA}; {json.dumps(OTHER)}", [PLACE, NOW]),
    ("llama3_json", '{"answer": 3}', [Said('{"answer": 3}')]),
    ("llama3_json", f"I say {LLAMA}", [Said(f"I say {LLAMA}")]),
]


@given(
    case=st.sampled_from(ANSWERS),
    thought=st.sampled_from(["", "hm", "<tool_call>?"]),
    whole=st.booleans(),
    data=st.data(),
)
def test_any_cutting_gives_the_same_pieces(
    case: tuple[str, str, list[Piece]], thought: str, whole: bool, data: st.DataObject
) -> None:
    name, text, expected = case
    opened = bool(thought) and data.draw(st.booleans())
    answer = f"{'' if opened else '<think>'}{thought}</think>\n\n{text}" if thought else text
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=12)))
    parts = [answer[i:j] for i, j in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    parser = AnswerParser(reasoning=True, thinking=opened, tools=FORMATS[name], whole_calls=whole)
    assert read(parser, parts) == ([Thought(thought)] if thought else []) + expected


CUT = '<tool_call>\n{"name": "weather", "arguments": {"place": "Zür'
BROKEN = '<tool_call>{"name": "weather", "arguments": {"place": }</tool_call> and so on'


def test_what_is_no_call_is_text_unless_it_was_streamed() -> None:
    for text in (CUT, BROKEN):
        assert read(AnswerParser(tools=FORMATS["hermes"]), [text]) == [Said(text)]
    assert read(AnswerParser(tools=FORMATS["hermes"], whole_calls=False), [CUT]) == [
        Called("weather", '{"place": "Zür')
    ]
    streamed = read(AnswerParser(tools=FORMATS["hermes"], whole_calls=False), [BROKEN])
    assert streamed == [Called("weather", '{"place": }'), Said(" and so on")]


@given(st.lists(st.sampled_from([*'{}[]"\\,:a', "<tool_call>", "</tool_call>"])), st.booleans())
def test_nothing_breaks_the_parser(parts: list[str], whole: bool) -> None:
    header = '<tool_call>{"name": "a", "arguments": {'
    read(AnswerParser(tools=FORMATS["hermes"], whole_calls=whole), [header, *parts])


WORDS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "{", '"name"', "}", " ", "a", "["]


@given(st.lists(st.sampled_from(WORDS)))
def test_no_letter_is_lost(parts: list[str]) -> None:
    for tool_format in FORMATS.values():
        pieces = read(AnswerParser(reasoning=True, tools=tool_format), [*parts, ""])
        shown = "".join(piece.text for piece in pieces if not isinstance(piece, Called))
        assert shown.replace('"name"', "").count("a") >= parts.count("a")


def test_formats_are_found_in_templates() -> None:
    assert detect_format("... <tool_call> ...") == FORMATS["hermes"]
    assert detect_format("[TOOL_CALLS] [") == FORMATS["mistral"]
    assert detect_format("'ipython' ... 'parameters'") == FORMATS["llama3_json"]
    assert detect_format("nothing of the kind") is None


async def test_whole_answer_with_calls() -> None:
    engine = answering(f"<think>Which place?</think>I look.{wrapped(CALL)}{wrapped(OTHER)}")
    async with connected(engine) as client:
        answer = (await client.post(PATH, json=question(tools=TOOLS))).json()
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert message["content"] == "I look."
    assert message["reasoning_content"] == "Which place?"
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "weather", "arguments": ARGUMENTS},
        {"name": "time", "arguments": "{}"},
    ]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    assert engine.requests[0].template["tools"] == TOOLS
    assert engine.requests[0].sampling.grammar is None


async def test_stream_with_calls() -> None:
    async with connected(answering(f"I look.{wrapped(CALL)}{wrapped(OTHER)}")) as client:
        chunks = [chunk["choices"][0] for chunk in await stream(client, question(tools=TOOLS))]
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == "I look."
    pieces = [call for chunk in chunks for call in chunk["delta"].get("tool_calls", ())]
    begun = [piece for piece in pieces if "id" in piece]
    assert [(piece["index"], piece["type"], piece["function"]) for piece in begun] == [
        (0, "function", {"name": "weather", "arguments": ""}),
        (1, "function", {"name": "time", "arguments": ""}),
    ]
    more = [piece for piece in pieces if "id" not in piece]
    assert all(set(piece) == {"index", "function"} and set(piece["function"]) == {"arguments"} for piece in more)
    texts = [[piece["function"]["arguments"] for piece in more if piece["index"] == index] for index in range(2)]
    assert ["".join(text) for text in texts] == [ARGUMENTS, "{}"]
    assert len(texts[0]) > 4
    assert chunks[-1]["finish_reason"] == "tool_calls"


async def test_one_call_only_if_they_must_not_be_parallel() -> None:
    async with connected(answering(wrapped(CALL) + wrapped(OTHER))) as client:
        body = question(tools=TOOLS, parallel_tool_calls=False)
        (choice,) = (await client.post(PATH, json=body)).json()["choices"]
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["message"]["content"] is None


async def test_no_tools_no_calls() -> None:
    for extra in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": [], "tool_choice": "auto"}):
        async with connected(answering(wrapped(CALL))) as client:
            (choice,) = (await client.post(PATH, json=question(**extra))).json()["choices"]
        assert choice["message"] == {"role": "assistant", "content": wrapped(CALL), "refusal": None}
        assert choice["finish_reason"] == "stop"


async def test_forced_calls_are_constrained() -> None:
    for choice in ("required", {"type": "function", "function": {"name": "time"}}):
        engine = answering(wrapped(OTHER))
        async with connected(engine) as client:
            answer = (await client.post(PATH, json=question(tools=TOOLS, tool_choice=choice))).json()
        grammar = str(engine.requests[0].sampling.grammar)
        assert ("weather" in grammar) == (choice == "required")
        assert answer["choices"][0]["finish_reason"] == ("tool_calls" if choice == "required" else "stop")
        assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "time"


async def test_mistral_ids_are_what_its_templates_want() -> None:
    engine = answering(f"[TOOL_CALLS] [{json.dumps(CALL)}]", "{{ tools }}[TOOL_CALLS]")
    engine.processor.chat.special_ids = {"[TOOL_CALLS]": 5}
    async with connected(engine) as client:
        (choice,) = (await client.post(PATH, json=question(tools=TOOLS))).json()["choices"]
    assert len(choice["message"]["tool_calls"][0]["id"]) == 9
    assert engine.requests[0].special_text


async def test_reasoning_can_be_left_in_the_text() -> None:
    async with connected(answering("<think>a</think>b", reasoning_parser="none")) as client:
        (choice,) = (await client.post(PATH, json=question())).json()["choices"]
    assert choice["message"]["content"] == "<think>a</think>b"


async def test_reasoning_that_the_prompt_has_opened() -> None:
    engine = answering("Well.</think>Yes.")
    engine.processor.chat.encode = lambda messages, **options: list(b"assistant: <think>")
    async with connected(engine) as client:
        chunks = [chunk["choices"][0]["delta"] for chunk in await stream(client, question())]
    assert "".join(part.get("reasoning_content", "") for part in chunks) == "Well."
    assert "".join(part.get("content", "") for part in chunks) == "Yes."


async def test_the_openai_client_sends_calls_and_results_back() -> None:
    engine = answering(wrapped(CALL))
    async with (
        listening(engine) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "Rain?"}]
        first = await client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
        (call,) = first.choices[0].message.tool_calls
        messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
        await client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
    _, assistant, tool = engine.requests[1].messages
    assert assistant["tool_calls"][0]["function"] == CALL
    assert tool == {"role": "tool", "content": "rain", "tool_call_id": call.id}


BAD = [
    (question(tools=[{"type": "function"}]), "tools[0].function", "missing"),
    (question(tools=[{"type": "web"}]), "tools[0].type", "web"),
    (question(tool_choice="required"), "tool_choice", "needs `tools`"),
    (question(tools=TOOLS, tool_choice="sometimes"), "tool_choice", "sometimes"),
    (
        question(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "rain"}}),
        "tool_choice.function.name",
        "rain",
    ),
    (question(tools=TOOLS, tool_choice="required", guided_regex="a"), "tool_choice", "both"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id", "missing"),
]


@pytest.mark.parametrize(("body", "param", "hint"), BAD)
async def test_field_and_reason_are_named(body: dict[str, Any], param: str, hint: str) -> None:
    engine = answering("a")
    async with connected(engine) as client:
        response = await client.post(PATH, json=body)
    assert response.status_code == 400
    assert error_of(response)["param"] == param
    assert hint in error_of(response)["message"]
    assert engine.requests == []


async def test_a_template_without_tools_is_named(client: httpx.AsyncClient) -> None:
    response = await client.post(PATH, json=question(tools=TOOLS))
    assert response.status_code == 400
    assert "--chat-template" in error_of(response)["message"]
