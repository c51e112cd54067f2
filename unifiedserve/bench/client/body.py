"""Write the bodies of requests: the same bytes for the same turns, answers and options."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from unifiedserve.bench.client.delivery import Media
from unifiedserve.bench.client.dialects import Dialect
from unifiedserve.bench.requests import Medium, Request, Text, Turn
from unifiedserve.errors import ConfigError

# Fields by which an answer may be shorter, or longer, than `max_tokens`.
_LENGTHS = frozenset(
    {
        *("max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "stop", "stop_token_ids", "n"),
        *("response_format", "structured_outputs", "guided_choice", "guided_grammar", "guided_json", "guided_regex"),
        *("tools", "tool_choice", "regex", "ebnf", "json_schema"),
    }
)
TOP = 20  # most likely first tokens that are asked for


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what every request asks for, beside its turns.

    `media` are the options of images and videos by name, None where the server decides; those in `video` go on top of
    them where a video is asked about. With `logprobs` an answer to choose comes with the likeliest first tokens.
    `extra` goes into every body as it is, and before anything else.
    """

    media: dict[str, float | None] = {}
    video: dict[str, float | None] = {}
    logprobs: bool = False
    salt: str = ""
    extra: dict[str, Any] = {}


class Bodies:
    """Make the bodies for one model on one server. Raises ConfigError if that cannot be asked for all `wishes`."""

    def __init__(self, model: str, dialect: Dialect, media: Media, wishes: Wishes) -> None:
        self._dialect = dialect
        self._media = media
        self._wishes = wishes
        self._fixed = {
            "model": model,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **dialect.token_ids,
            **self._salt(),
        }
        self._options = self._fields(wishes.media)
        self._video_options = self._fields(wishes.media | wishes.video)

    @property
    def exact(self) -> bool:
        """Tell whether answers have as many tokens as turns ask for: not where `extra` has a say in that."""
        return bool(self._dialect.exact) and self._wishes.extra.keys().isdisjoint(_LENGTHS)

    def make(self, turns: Sequence[Turn], answers: Sequence[str]) -> bytes:
        """Return the body that asks the last of `turns`, after the `answers` to those before."""
        messages: list[dict[str, Any]] = []
        for turn, answer in zip(turns, [*answers, None], strict=True):
            messages.append({"role": "user", "content": self._content(turn)})
            if answer is not None:
                messages.append({"role": "assistant", "content": answer})
        asked = turns[-1]
        options = self._video_options if any(map(_has_video, turns)) else self._options
        body = {**self._fixed, **options, "messages": messages, "max_tokens": asked.max_tokens}
        if asked.exact:
            body |= self._dialect.exact
        if asked.expected and self._wishes.logprobs:
            body |= {"logprobs": True, "top_logprobs": TOP}
        return msgspec.json.encode(body | self._wishes.extra)

    def _content(self, turn: Turn) -> str | list[dict[str, Any]]:
        if len(turn.parts) == 1 and isinstance(turn.parts[0], Text):
            return turn.parts[0].text
        return [self._part(part) for part in turn.parts]

    def _part(self, part: Text | Medium) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        kind = f"{part.kind}_url"
        return {"type": kind, kind: {"url": self._media.url(part.path)}}

    def _salt(self) -> dict[str, str]:
        if self._wishes.salt and not self._dialect.salt:
            raise ConfigError(f"--cache-salt: {self._dialect.name} has none")
        return {self._dialect.salt: self._wishes.salt} if self._wishes.salt else {}

    def _fields(self, options: dict[str, float | None]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, value in options.items():
            if value is not None:
                for path in self._paths_of(name):
                    _put(fields, path, value)
        return fields

    def _paths_of(self, name: str) -> tuple[tuple[str, ...], ...]:
        if name not in self._dialect.options:
            option = name.replace("_", "-")
            raise ConfigError(
                f"--{option}: requests to {self._dialect.name} cannot say that: set it where it is started"
            )
        return self._dialect.options[name]


def media_paths(requests: Iterable[Request]) -> list[str]:
    """Return the files that requests are about. Raises ConfigError if one is about a part of a file."""
    media = [part for request in requests for turn in request.turns for part in turn.parts if isinstance(part, Medium)]
    for medium in media:
        if medium.start is not None or medium.end is not None:
            raise ConfigError(f"{medium.path}: no server can be asked about a part of a file: cut it out first")
    return list(dict.fromkeys(medium.path for medium in media))


def _has_video(turn: Turn) -> bool:
    return any(isinstance(part, Medium) and part.kind == "video" for part in turn.parts)


def _put(fields: dict[str, Any], path: tuple[str, ...], value: float) -> None:
    *above, last = path
    for name in above:
        fields = fields.setdefault(name, {})
    fields[last] = value
