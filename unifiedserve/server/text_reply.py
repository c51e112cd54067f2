"""What clients of /v1/completions get: OpenAI's text completion objects, whole or in chunks."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from unifiedserve.messages import Delta, TokenLogprob
from unifiedserve.server.tally import Tally, Usage, identity

_LOWEST = -9999.0  # JSON has no infinity


class TextLogprobs(msgspec.Struct):
    """Lists with an entry a token; `text_offset` counts characters."""

    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class TextChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None


class Completion(msgspec.Struct, kw_only=True):
    """The same object whole and as a chunk of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage | None = None


class TextReply:
    """The answers to some prompts as they grow.

    Each prompt has `best_of` answers, of which a whole completion shows the `shown` likeliest. `echoes` are the
    texts that answers begin with, one a prompt.
    """

    def __init__(
        self,
        id: str,
        model: str,
        tokenizer: Any,
        echoes: Sequence[str],
        best_of: int,
        *,
        shown: int,
        logprobs: bool,
        token_ids: bool,
    ) -> None:
        self._identity = identity(id, model)
        self._tokenizer = tokenizer
        self._best_of = best_of
        self._shown = shown
        self._with_logprobs = logprobs
        self._with_token_ids = token_ids
        self._tally = Tally(best_of)
        self._answers = [_Answer(echo) for echo in echoes for _ in range(best_of)]

    def opening(self) -> list[TextChoice]:
        """What a stream begins with: the echoes."""
        return [TextChoice(index, answer.echo) for index, answer in enumerate(self._answers) if answer.echo]

    def take(self, delta: Delta) -> list[TextChoice]:
        """What a delta adds to a stream."""
        self._tally.add(delta)
        answer = self._answers[delta.index]
        answer.score += sum(entry.logprob or 0.0 for entry in delta.logprobs or ())
        answer.tokens += len(delta.token_ids)
        choice = TextChoice(
            delta.index,
            delta.text,
            self._logprobs(answer, delta.logprobs or ()) if self._with_logprobs else None,
            delta.finish_reason,
            delta.stop_reason,
            delta.token_ids if self._with_token_ids else None,
        )
        return [choice]

    def keep(self, choices: Sequence[TextChoice]) -> None:
        """Remember them for `completion`."""
        for choice in choices:
            self._answers[choice.index].choices.append(choice)

    def chunk(self, *choices: TextChoice, usage: Usage | None = None) -> Completion:
        return Completion(**self._identity, choices=list(choices), usage=usage)

    def usage(self) -> Usage:
        return self._tally.usage()

    def completion(self) -> Completion:
        chosen: list[_Answer] = []
        for first in range(0, len(self._answers), self._best_of):
            answers = self._answers[first : first + self._best_of]
            if self._shown < self._best_of:
                answers = sorted(answers, key=lambda answer: answer.score / max(answer.tokens, 1), reverse=True)
            chosen += answers[: self._shown]
        choices = [answer.whole(index) for index, answer in enumerate(chosen)]
        return Completion(**self._identity, choices=choices, usage=self.usage())

    def _logprobs(self, answer: "_Answer", entries: Sequence[TokenLogprob]) -> TextLogprobs:
        logprobs = TextLogprobs([], [], [], [])
        for entry in entries:
            text: str = self._tokenizer.decode([entry.token])
            logprobs.text_offset.append(answer.offset)
            logprobs.tokens.append(text)
            logprobs.token_logprobs.append(_finite(entry.logprob))
            top = {self._tokenizer.decode([token]): _finite(value) for token, value in reversed(entry.top)}
            logprobs.top_logprobs.append({**top, text: _finite(entry.logprob)})
            answer.offset += len(text)
        return logprobs


class _Answer:
    def __init__(self, echo: str) -> None:
        self.echo = echo
        self.offset = len(echo)
        self.choices: list[TextChoice] = []
        self.score = 0.0  # log-probability of all tokens
        self.tokens = 0

    def whole(self, index: int) -> TextChoice:
        last = self.choices[-1] if self.choices else TextChoice(index, "")
        logprobs = [choice.logprobs for choice in self.choices if choice.logprobs is not None]
        token_ids = [choice.token_ids for choice in self.choices if choice.token_ids is not None]
        return TextChoice(
            index,
            self.echo + "".join(choice.text for choice in self.choices),
            _joined(logprobs) if logprobs else None,
            last.finish_reason,
            last.stop_reason,
            [token for part in token_ids for token in part] if token_ids else None,
        )


def _joined(parts: Sequence[TextLogprobs]) -> TextLogprobs:
    fields = TextLogprobs.__struct_fields__
    return TextLogprobs(*([item for part in parts for item in getattr(part, field)] for field in fields))


def _finite(logprob: float | None) -> float:
    return _LOWEST if logprob is None else max(logprob, _LOWEST)
