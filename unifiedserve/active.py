"""A request in flight, as the engine keeps it."""

import asyncio
from dataclasses import dataclass, field

import msgspec

from ipc_buffers import Arena
from unifiedserve.admission import Admitted
from unifiedserve.caches import Caches, Contents
from unifiedserve.errors import RequestError
from unifiedserve.messages import (
    DecodeMedia,
    Delta,
    MediaSource,
    PromptLogprobs,
    PromptVector,
    Request,
    Reuse,
    Token,
    TokenLogprob,
)
from unifiedserve.output import Answer


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """What a recomputation needs, and where the client reads.

    An *attempt* is one run of some of the answers through the stages under a uid of its own; a preempted
    answer gets a further one. A request has ended when it has no attempts left.
    """

    admitted: Admitted
    arrival: float  # monotonic seconds
    answers: list[Answer]
    sources: list[MediaSource]
    arenas: list[Arena]
    contents: Contents | None = None  # None: nothing of it is cached
    prompt_logprobs: list[TokenLogprob] | None = None  # of every token, as they come; None: not asked for
    outputs: asyncio.Queue[Delta | RequestError] = field(default_factory=asyncio.Queue)
    attempts: dict[int, set[int]] = field(default_factory=dict)  # uid -> answers still in it
    early: dict[tuple[int, int], Token] = field(default_factory=dict)  # (answer, number), before their turn
    last_token: dict[int, float] = field(default_factory=dict)  # answer -> monotonic seconds
    pooled: bytes | None = None  # float32, of a request to embed
    cached_tokens: int = 0  # of the prompt, at the first attempt
    stale: bool = False  # what it was to reuse was gone when its turn came: it is computed in full
    crashes: int = 0  # workers that died while it was in flight
    ending: bool = False  # failed or aborted: only to be drained

    @property
    def complete(self) -> bool:
        return all(answer.finished for answer in self.answers)

    @property
    def unfinished(self) -> list[int]:
        return [index for index, answer in enumerate(self.answers) if not answer.finished]

    def in_order(self, token: Token) -> list[Token]:
        """The tokens whose turn it is, now that this one has come; one that was there before gives none."""
        number = len(self.answers[token.index].token_ids)
        if token.number >= number:
            self.early[token.index, token.number] = token
        ready = []
        while (token.index, number) in self.early:
            ready.append(self.early.pop((token.index, number)))
            number += 1
        return ready

    def forget_early(self, index: int) -> None:
        """Drop tokens of an attempt that is being replaced."""
        self.early = {key: token for key, token in self.early.items() if key[0] != index}

    def learn(self, told: PromptLogprobs | PromptVector) -> None:
        """What was read off the prompt; that from before a worker died may come again."""
        if isinstance(told, PromptVector):
            self.pooled = told.data
        elif self.prompt_logprobs is not None:
            self.prompt_logprobs[told.start : told.start + len(told.tokens)] = told.tokens

    def language_request(self, uid: int, indices: list[int], caches: Caches) -> Request:
        """The stages' view. One answer goes on from its tokens so far; several start at the prompt."""
        prompt = self.admitted.prompt
        generated = self.answers[indices[0]].token_ids if len(indices) == 1 else []
        sampling = msgspec.structs.replace(self.admitted.sampling, stop=())  # stop strings are found here
        if generated:
            sampling = msgspec.structs.replace(sampling, prompt_logprobs=None)  # they are there
        request = Request(
            uid=uid,
            arrival=self.arrival,
            priority=self.admitted.request.priority,
            token_ids=prompt.token_ids + generated,
            num_prompt=len(prompt.token_ids),
            media=prompt.media,
            sampling=sampling,
            indices=indices,
            embed=self.admitted.request.embed,
        )
        if self.contents is not None:
            request.page_keys = caches.page_keys(request.token_ids, self.contents)
            request.tail_media = caches.tail_media(request.token_ids, self.contents)
            request.unit_keys = caches.unit_keys(self.contents)
            if not self.stale:
                keys = None if request.reads_prompt else request.page_keys  # all of it is to be computed
                request.reuse = caches.find(len(request.token_ids), keys, self.contents)
        return request

    def vision_request(self, uid: int, reuse: Reuse, *, watched: bool = False) -> DecodeMedia | None:
        """The media that must be decoded, for there is nothing to reuse instead; None if there are none."""
        sources = []
        for source in self.sources:
            units = [
                unit
                for unit in source.wanted
                if source.first_unit + unit >= reuse.covered and source.first_unit + unit not in reuse.units
            ]
            if units:
                sources.append(msgspec.structs.replace(source, units=units))
        if not sources:
            return None
        priority = self.admitted.request.priority
        return DecodeMedia(uid=uid, arrival=self.arrival, priority=priority, media=sources, watched=watched)

    def close(self) -> None:
        """Remove the media from shared memory."""
        for arena in self.arenas:
            arena.close()
            arena.unlink()
        self.arenas.clear()
