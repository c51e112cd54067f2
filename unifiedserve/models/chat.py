"""Turn chat messages into token ids, through the checkpoint's own template.

Text that users write must not act as control tokens: `<|im_end|>` in a question is eight characters, not the end
of a turn. Before rendering, a marker is put inside every special token's text found in the messages; the rendered
prompt is then cut at the genuine special tokens, and what lies between is encoded as plain text without the marker.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.messages.media import PromptError
from unifiedserve.models.call_form import CallForm
from unifiedserve.models.content_form import ContentForm
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.text import NO_LIMIT, TextEncoder
from unifiedserve.models.token_bytes import TokenBytes

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")
MARKERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # Unicode noncharacters: never in text for interchange
_BREAK, _WORD = "\n", "a"


def load_tokenizer(model_dir: Path) -> Any:
    """Load the transformers tokenizer of a checkpoint; raises ConfigError if it is missing or cannot be loaded."""
    if not any((model_dir / name).is_file() for name in TOKENIZER_FILES):
        raise ConfigError(f"{model_dir}: no tokenizer ({' or '.join(TOKENIZER_FILES)})")
    try:
        return load_transformers().AutoTokenizer.from_pretrained(model_dir)
    except Exception as error:
        raise ConfigError(f"{model_dir}: cannot load the tokenizer: {error}") from error


class ChatTemplate:
    """Hold the tokenizer of a checkpoint and its chat template (`override` replaces the latter).

    Raises ConfigError if the tokenizer is missing or cannot be loaded.
    """

    def __init__(self, model_dir: Path, override: str | None = None) -> None:
        self.tokenizer = load_tokenizer(model_dir)
        self.text = TextEncoder(self.tokenizer)
        self.tokens = TokenBytes(self.tokenizer)
        self._model_dir = model_dir
        self.template = override or _processor_template(model_dir) or self.tokenizer.chat_template
        self.special_ids: dict[str, int] = {
            token.content: index for index, token in self.tokenizer.added_tokens_decoder.items() if token.special
        }
        self._special = _any_of(self.special_ids)

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        expand: Callable[[str], str] = str,
        limit: int = NO_LIMIT,
        reserved: Collection[str] = (),
        /,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **template_kwargs: Any,
    ) -> list[int]:
        """Return token ids of the rendered conversation; raises PromptError if the template refuses it.

        `expand` changes the rendered text, in which the special tokens are genuine, before it is tokenised. So are
        `reserved` texts, which need not be tokens. Raises TooLongError for a conversation of far more than `limit`
        tokens.
        """
        if self.template is None:
            raise PromptError("the checkpoint has no chat template: start the server with --chat-template")
        self.text.check(list(_rendered_whole(messages, tools)), limit)
        given: dict[str, Any] = {
            "messages": [self._calls.of(self._form.of(message)) for message in messages],
            "tools": tools,
            "kwargs": template_kwargs,
        }
        genuine = self._genuine(reserved)
        marker = None
        if any(genuine.search(text) for text in _strings(given)):
            marker = _unused_marker(given)
            given = _map_strings(given, lambda text: _mark(text, genuine, marker))
        try:
            text = self._render(given["messages"], given["tools"] or None, **given["kwargs"])
        except Exception as error:
            raise PromptError(f"the chat template cannot render these messages: {error}", "messages") from error
        text = expand(text)
        self.text.check([text], limit)
        return self.text.encode(text) if marker is None else self._tokenize_marked(text, marker)

    def _render(self, messages: Sequence[Mapping[str, Any]], tools: Any = None, **kwargs: Any) -> str:
        named = not isinstance(self.template, str)  # several, of which the tokenizer chooses: by name, maybe for tools
        options = {"chat_template": None if named else self.template, "tools": tools, "tokenize": False}
        text: str = self.tokenizer.apply_chat_template(messages, **{**options, "add_generation_prompt": True, **kwargs})
        return text

    @cached_property
    def _form(self) -> ContentForm:
        return ContentForm(self._render)

    @cached_property
    def _calls(self) -> CallForm:
        return CallForm(self._render)

    @cached_property
    def _plain_text(self) -> TextEncoder:
        """Load a second tokenizer, for which special tokens are text. The option is state, which threads may share."""
        tokenizer = load_transformers().AutoTokenizer.from_pretrained(self._model_dir, split_special_tokens=True)
        return TextEncoder(tokenizer)

    def _genuine(self, reserved: Collection[str]) -> re.Pattern[str]:
        """Return a pattern of what texts must not contain as it is: special tokens and `reserved` texts."""
        others = [text for text in reserved if text not in self.special_ids]
        return _any_of([*self.special_ids, *others]) if others else self._special

    def _tokenize_marked(self, text: str, marker: str) -> list[int]:
        ids: list[int] = []
        start = 0
        for match in self._special.finditer(text):
            ids += self._plain_piece(text[start : match.start()].replace(marker, ""), within=start > 0)
            ids.append(self.special_ids[match[0]])
            start = match.end()
        return ids + self._plain_piece(text[start:].replace(marker, ""), within=start > 0)

    def _plain_piece(self, text: str, *, within: bool) -> list[int]:
        """Encode a piece of a prompt as plain text, as `within` the whole."""
        if within and self._opens_texts:
            before = self._plain_text.encode(_BREAK)
            ids = self._plain_text.encode(_BREAK + text)
            if ids[: len(before)] == before:
                return ids[len(before) :]
        return self._plain_text.encode(text)

    @cached_property
    def _opens_texts(self) -> bool:
        """Tell whether the tokenizer opens texts with a space, but not behind special tokens."""
        special = next(iter(self.special_ids))
        return self.text.encode(special + _WORD)[1:] != self._plain_text.encode(_WORD)


def _any_of(texts: Collection[str]) -> re.Pattern[str]:
    """Return a pattern of texts, of which the longest that fits is found."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or r"(?!)")


def _mark(text: str, genuine: re.Pattern[str], marker: str) -> str:
    return genuine.sub(lambda match: match[0][:1] + marker + match[0][1:], text)


def _rendered_whole(messages: Sequence[Mapping[str, Any]], tools: Any) -> Iterator[str]:
    """Yield texts that templates take over; of what a model said before, some leave out its thoughts."""
    yield from _strings([message.get("content") for message in messages if message.get("role") != "assistant"])
    yield from _strings(tools)


def _processor_template(model_dir: Path) -> str | None:
    """Read the template that checkpoints from before transformers 5 keep with the processor's config."""
    files = (read_json(model_dir / name, default={}) for name in ("processor_config.json", "chat_template.json"))
    templates: Iterator[str | None] = (each.get("chat_template") for each in files)
    return next(filter(None, templates), None)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _map_strings(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_strings(key, change): _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_strings(item, change) for item in value]
    return value


def _unused_marker(value: Any) -> str:
    used = set().union(*map(set, _strings(value)))
    for marker in MARKERS:
        if marker not in used:
            return marker
    raise PromptError("the messages contain every Unicode noncharacter next to a special token", "messages")
