"""Text comes to the model whole, whichever form of it a client sends and a chat template reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import chat_template, save, text_sizes, tokenizer
from reference import transformers

from unifiedserve.messages.media import PromptError
from unifiedserve.models.chat import ChatTemplate

TEXT_ONLY = {  # as published models have them
    "joined (SmolLM2)": "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '\n' }}{% endfor %}",
    "printed (Llama 2)": "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}",
    "trimmed (Mistral)": "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] | trim }}\n{% endfor %}",
    "as JSON": "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] | tojson }}\n{% endfor %}",
}
PARTS_ONLY = (  # as SmolVLM has it
    "{% for m in messages %}<{{ m['role'] }}>{% for part in m['content'] %}{% if part['type'] == 'text' %}"
    "{{ part['text'] }}{% elif part['type'] == 'image' %}[image]{% endif %}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("content") / "checkpoint"
    tokens = tokenizer()
    save(folder, transformers.LlamaConfig(**text_sizes(tokens)), tokens, chat_template({}))
    return folder


def rendered(checkpoint: Path, template: str, *contents: Any) -> str:
    chat = ChatTemplate(checkpoint, template)
    messages = [{"role": role, "content": content} for role, content in zip(["system", "user"], contents, strict=False)]
    text: str = chat.tokenizer.decode(chat.encode(messages, add_generation_prompt=False))
    return text


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize("template", TEXT_ONLY.values(), ids=TEXT_ONLY)
def test_parts_of_text_reach_a_template_that_reads_text(checkpoint: Path, template: str) -> None:
    wanted = rendered(checkpoint, template, "Be brief.", "What is\na lake?")
    assert rendered(checkpoint, template, parts("Be brief."), parts("What is", "a lake?")) == wanted
    assert json.dumps("lake")[1:-1] in wanted


def test_text_reaches_a_template_that_reads_parts(checkpoint: Path) -> None:
    wanted = "<system>Be brief.<user>What is a lake?"
    assert rendered(checkpoint, PARTS_ONLY, "Be brief.", "What is a lake?") == wanted
    assert rendered(checkpoint, PARTS_ONLY, parts("Be brief."), parts("What is ", "a lake?")) == wanted


def test_media_stay_where_a_template_reads_parts(checkpoint: Path) -> None:
    content = [{"type": "image"}, *parts("What is this?")]
    assert rendered(checkpoint, PARTS_ONLY, "Be brief.", content) == "<system>Be brief.<user>[image]What is this?"


def test_media_are_refused_where_a_template_reads_text(checkpoint: Path) -> None:
    with pytest.raises(PromptError, match="cannot render"):
        rendered(checkpoint, TEXT_ONLY["joined (SmolLM2)"], "Be brief.", [{"type": "image"}, *parts("What is this?")])
