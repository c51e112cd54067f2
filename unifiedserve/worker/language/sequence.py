"""Hold a sequence: an answer in the worker that generates its tokens."""

from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.api import TokenLogprob
from unifiedserve.messages.pages import PageSlice
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import Generation, Token
from unifiedserve.sampling.sample import SampledToken
from unifiedserve.worker.language.held import Held


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """Hold its tokens so far and its pages. These are those of its `Generation` and grow."""

    ticket: Ticket
    index: int
    token_ids: list[int]
    num_prompt: int
    pages: list[int]
    visual: list[PageSlice] = field(default_factory=list)
    position_offset: int
    sampling: SamplingParams
    keyed: int = 0  # leading pages that are remembered, the last of them by
    last_key: bytes = b""
    tail_media: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, message: Generation) -> "Sequence":
        """Return what has been handed over."""
        return cls(**msgspec.structs.asdict(message))

    def handed_over(self) -> Generation:
        """Return the message that hands it over, with all that it holds."""
        return Generation(**{name: getattr(self, name) for name in Generation.__struct_fields__})

    @property
    def key(self) -> tuple[int, int]:
        """Return the uid of the request and the number of the answer."""
        return self.ticket.uid, self.index

    @property
    def held(self) -> Held:
        """Return the pages that it holds."""
        return Held(self.pages, [part.page for part in self.visual])

    @property
    def num_generated(self) -> int:
        """Return how many tokens were generated."""
        return len(self.token_ids) - self.num_prompt

    def append(self, sampled: SampledToken, eos_token_ids: Collection[int]) -> Token:
        """Add a sampled token; return the event, which says whether it ends the answer."""
        number = self.num_generated
        self.token_ids.append(sampled.token)
        finish, stop_reason = self.sampling.finish(sampled.token, self.num_generated, eos_token_ids)
        logprob = TokenLogprob(sampled.token, sampled.logprob, sampled.top)
        return Token(*self.key, number, logprob, finish, stop_reason)

    def release(self, kv: KVCache, visual: RowBuffer) -> None:
        """Give back all that it holds."""
        kv.release(self.held.kv)
        visual.release(self.held.visual)
