"""A sequence that decodes, and when it ends."""

from collections.abc import Collection
from dataclasses import dataclass

from unifiedserve.messages import FinishReason, Handoff, Token, TokenLogprob
from unifiedserve.sampling import SampledToken, SamplingParams


@dataclass(slots=True)
class Sequence:
    """One answer being generated: its tokens so far, and the KV pages that hold all but the last."""

    uid: int
    index: int
    arrival: float
    token_ids: list[int]
    num_prompt: int
    pages: list[int]
    position_offset: int
    sampling: SamplingParams

    @classmethod
    def receive(cls, handoff: Handoff) -> "Sequence":
        return cls(
            handoff.uid,
            handoff.index,
            handoff.arrival,
            handoff.token_ids,
            handoff.num_prompt,
            handoff.pages,
            handoff.position_offset,
            handoff.sampling,
        )

    def handoff(self) -> Handoff:
        return Handoff(
            uid=self.uid,
            index=self.index,
            arrival=self.arrival,
            token_ids=self.token_ids,
            num_prompt=self.num_prompt,
            pages=self.pages,
            position_offset=self.position_offset,
            sampling=self.sampling,
        )

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt

    def append(self, sampled: SampledToken, eos_token_ids: Collection[int]) -> Token:
        """Add a sampled token; the event says whether it ends the answer."""
        number = self.num_generated
        self.token_ids.append(sampled.token)
        finish, stop_reason = self._finish(sampled.token, eos_token_ids)
        logprob = TokenLogprob(sampled.token, sampled.logprob, sampled.top)
        return Token(self.uid, self.index, number, logprob, finish, stop_reason)

    def _finish(self, token: int, eos_token_ids: Collection[int]) -> tuple[FinishReason | None, int | None]:
        params = self.sampling
        if token in (params.stop_token_ids or ()):
            return "stop", token
        if token in eos_token_ids and not params.ignore_eos:
            return "stop", None
        if params.max_tokens is not None and self.num_generated >= params.max_tokens:
            return "length", None
        return None, None
