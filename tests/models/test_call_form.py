"""A call that was cut off: its text reaches the templates that take text, and the others read no arguments."""

from pathlib import Path
from typing import Any

import pytest
from builders import chat_template, save, text_sizes, tokenizer
from reference import transformers

from unifiedserve.models.chat import ChatTemplate

HEAD = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% set f = c.function %}"
TAIL = "{% endfor %}{% endfor %}"
TEMPLATES = {  # as published models have them
    "text or JSON (Qwen3)": (
        "{% if f.arguments is string %}{{ f.arguments }}{% else %}{{ f.arguments | tojson }}{% endif %}",
        True,
    ),
    "JSON (Qwen2.5)": ("{{ f.arguments | tojson }}", False),
    "names (Qwen3-Coder)": (
        "{{ '{' }}{% for name, value in f.arguments.items() %}{{ name }}{% endfor %}{{ '}' }}",
        False,
    ),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calls") / "checkpoint"
    tokens = tokenizer()
    save(folder, transformers.LlamaConfig(**text_sizes(tokens)), tokens, chat_template({}))
    return folder


def rendered(checkpoint: Path, body: str, *arguments: Any) -> str:
    chat = ChatTemplate(checkpoint, HEAD + body + TAIL)
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": each}} for each in arguments]
    messages = [{"role": "assistant", "content": "Well: ", "tool_calls": calls}]
    return str(chat.tokenizer.decode(chat.encode(messages, add_generation_prompt=False)))


@pytest.mark.parametrize(("body", "takes_text"), TEMPLATES.values(), ids=TEMPLATES)
def test_broken_arguments_are_text_or_nothing(checkpoint: Path, body: str, takes_text: bool) -> None:
    broken = '{"place": "Zü'
    assert rendered(checkpoint, body, broken) == f"Well: {broken if takes_text else '{}'}"
    assert "lake" in rendered(checkpoint, body, {"lake": 1}, broken)


def test_a_message_that_is_gone_on_with_is_left_open(checkpoint: Path) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    chat = ChatTemplate(checkpoint, template)
    for said in ("The river is", "The river is <|im_end|> "):
        messages = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": said}]
        ids = chat.encode(messages, add_generation_prompt=False, continue_final_message=True)
        end = "<|im_start|>assistant\n" + said
        assert str(chat.tokenizer.decode(ids)).endswith(end)
        assert ids.count(chat.special_ids["<|im_end|>"]) == 1
