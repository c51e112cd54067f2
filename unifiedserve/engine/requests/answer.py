"""Turn sampled tokens into the text that a client sees: detokenisation and stop strings."""

from typing import Any

from tokenizers.decoders import DecodeStream

from unifiedserve.engine.requests.early_tokens import EarlyTokens
from unifiedserve.messages.api import Delta, FinishReason, TokenLogprob
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.seen import SeenMedium
from unifiedserve.messages.wire import Token


class Answer:
    """Hold an answer while it is generated. Text that might be the start of a stop string is held back."""

    def __init__(
        self,
        tokenizer: Any,
        sampling: SamplingParams,
        prompt_tokens: int,
        *,
        special_text: bool = False,
        prompt_logprobs: list[TokenLogprob] | None = None,
        media: list[SeenMedium] | None = None,
    ) -> None:
        """Begin an answer; `prompt_logprobs`, complete by then, and `media` go with its first piece."""
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=not special_text)
        self._skip_special = not special_text
        self._stops = sampling.stop
        self._want_logprobs = sampling.logprobs is not None
        self._prompt_tokens = prompt_tokens
        self._cached_tokens = 0
        self._prompt_logprobs = prompt_logprobs
        self._media = media
        self._emitted = ""
        self._held = ""
        self._pending: list[TokenLogprob] = []
        self._early = EarlyTokens()
        self.token_ids: list[int] = []
        self.last_token: float | None = None  # when it came, in monotonic seconds
        self.finished = False

    def in_order(self, token: Token) -> list[Token]:
        """Return the tokens to push, now that this one has come: none if it is early or was there before."""
        return self._early.ready(token, len(self.token_ids))

    def forget_early(self) -> None:
        """Drop the tokens that wait for their turn. They will be computed again."""
        self._early.clear()

    def push(self, token: Token, cached_tokens: int = 0) -> Delta | None:
        """Take a token and return what can be shown now: None while it may be part of a stop string.

        A token that makes no whole character yet comes at once, without text, so that its time is seen.
        `cached_tokens` of the prompt's tokens need not be computed.
        """
        self._cached_tokens = cached_tokens
        sampled = token.token
        self.token_ids.append(sampled.token)
        self._pending.append(sampled)
        if token.finish != "stop":
            self._held += self._stream.step(self._tokenizer._tokenizer, sampled.token) or ""
        finish, stop_reason = token.finish, token.stop_reason
        if stop := self._find_stop():
            return self._delta(self._held[: stop[0]], "stop", stop[1], token.index)
        if finish:
            return self._delta(self._held + self._undecoded(finish), finish, stop_reason, token.index)
        ready = len(self._held) - self._partial_stop()
        if ready == 0 and (self._held or self._stops):
            return None  # may become a stop string
        return self._delta(self._held[:ready], None, None, token.index)

    def end(self, index: int, pooled: bytes | None = None) -> Delta:
        """End an answer that was to have no tokens; returns its only piece."""
        delta = self._delta("", "length", None, index)
        delta.pooled = pooled
        return delta

    def _delta(self, text: str, finish: FinishReason | None, stop_reason: str | int | None, index: int) -> Delta:
        self._held = self._held[len(text) :]
        self._emitted += text
        self.finished = finish is not None
        pending, self._pending = self._pending, []
        prompt_logprobs, self._prompt_logprobs = self._prompt_logprobs, None
        media, self._media = self._media, None
        return Delta(
            index=index,
            text=text,
            token_ids=[sampled.token for sampled in pending],
            logprobs=pending if self._want_logprobs else None,
            finish_reason=finish,
            stop_reason=stop_reason,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            generated_tokens=len(self.token_ids),
            prompt_logprobs=prompt_logprobs,
            media=media,
        )

    def _undecoded(self, finish: FinishReason) -> str:
        """Return the text of trailing bytes that do not make a whole character."""
        token_ids = self.token_ids[:-1] if finish == "stop" else self.token_ids
        whole: str = self._tokenizer.decode(token_ids, skip_special_tokens=self._skip_special)
        shown = self._emitted + self._held
        return whole[len(shown) :] if whole.startswith(shown) else ""

    def _find_stop(self) -> tuple[int, str] | None:
        found = [(self._held.find(stop), stop) for stop in self._stops if stop in self._held]
        return min(found) if found else None

    def _partial_stop(self) -> int:
        """Return the length of the held text's longest end that begins a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
