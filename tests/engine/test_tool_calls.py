"""Tools over a real daemon whose template knows them: what must be a call is one, whatever the weights."""

from typing import Any

import pytest
from completions import ask
from daemon import Daemon
from drawing_tools import TOOLS, check
from media import text_part

pytestmark = pytest.mark.daemon("calls that real workers are made to write", chat_template="tools")


@pytest.mark.parametrize(
    ("placement", "tool_call_parser"), [("shared", "auto"), ("monolithic", "llama3_json"), ("monolithic", "mistral")]
)
def test_forced_calls_are_valid(daemon: Daemon, placement: str, tool_call_parser: str) -> None:
    options: dict[str, Any] = {"tools": TOOLS, "temperature": 1, "max_tokens": 400, "n": 4}
    for seed in range(2):
        named = {"type": "function", "function": {"name": "draw"}}
        for choice in ask(daemon, text_part("Draw."), tool_choice=named, seed=seed, **options).choices:
            assert choice.finish_reason == "stop"
            (call,) = choice.message.tool_calls
            assert call.function.name == "draw"
            check(call)
        chosen = ask(daemon, text_part("Draw."), tool_choice="required", seed=seed, **options).choices
        for choice in chosen:
            if choice.finish_reason != "length":
                assert choice.finish_reason == "tool_calls"
                assert choice.message.content is None
            for call in choice.message.tool_calls or ():
                check(call)
        assert any(choice.message.tool_calls for choice in chosen)
    daemon.wait_idle()


def test_a_streamed_call_can_be_answered(daemon: Daemon) -> None:
    options: dict[str, Any] = {
        "tools": TOOLS[:1],  # whose arguments have more than two brackets
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 300,
    }
    chunks = list(ask(daemon, text_part("Draw."), stream=True, **options))
    call, *more = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    call.function.arguments += "".join(piece.function.arguments for piece in more)
    assert len(more) > 2
    check(call)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    function = {"name": call.function.name, "arguments": call.function.arguments}
    turns = [
        {"role": "user", "content": "Draw."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "done"},
    ]
    model = daemon.engine.model_name
    answer = daemon.client.chat.completions.create(model=model, messages=turns, tools=TOOLS, max_tokens=8)
    assert answer.choices[0].finish_reason in ("length", "stop")
    daemon.wait_idle()
