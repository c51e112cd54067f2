"""Takes requests in: checked, planned, their media identified and where the vision stage can read them."""

import itertools

from ipc_buffers import Arena, ArenaError
from unifiedserve.active import ActiveRequest
from unifiedserve.admission import Admission, media_name
from unifiedserve.caches import contents_of
from unifiedserve.config import EngineConfig
from unifiedserve.errors import RequestError
from unifiedserve.media_digest import MediaDigests
from unifiedserve.messages import GenerateRequest, MediaSource, TokenLogprob
from unifiedserve.models.base import Processor
from unifiedserve.output import Answer
from unifiedserve.supervisor import Supervisor

_COPY_BYTES = 1 << 20


class Intake:
    """Blocking (media are analysed, hashed and copied): call it from threads."""

    def __init__(self, config: EngineConfig, processor: Processor, supervisor: Supervisor) -> None:
        self._admission = Admission(config, processor, supervisor.memory.layout)
        self._processor = processor
        self._arena_name = supervisor.arena_name
        self._cached = not config.no_prefix_cache or config.visual_cache
        self._page_tokens = config.kv_page_tokens
        self._digests = MediaDigests()
        self._numbers = itertools.count(1)
        self.max_model_len = self._admission.max_model_len

    def take(self, request: GenerateRequest, arrival: float) -> ActiveRequest:
        """Raises RequestError saying what is wrong with it; then nothing is held."""
        admitted = self._admission.admit(request)
        prompt, sampling = admitted.prompt, admitted.sampling
        scored = sampling.prompt_logprobs is not None
        prompt_logprobs = [TokenLogprob(token) for token in prompt.token_ids] if scored else None
        answers = [
            Answer(
                self._processor.tokenizer,
                sampling,
                len(prompt.token_ids),
                special_text=request.special_text,
                prompt_logprobs=prompt_logprobs,
            )
            for _ in range(sampling.n)
        ]
        active = ActiveRequest(admitted, arrival, answers, [], [], prompt_logprobs=prompt_logprobs)
        try:
            if self._cached:
                digests = [self._digests.of(request.media[i]) for i in prompt.order]
                visual_ids = set(self._processor.visual_ids.values())
                active.contents = contents_of(
                    prompt, visual_ids, digests, self._page_tokens, self._processor.keeps_visual_rows
                )
            self._spool(active)
        except OSError as error:
            active.close()
            raise RequestError(f"a medium cannot be read: {error}", param="messages") from error
        except ArenaError as error:
            active.close()
            raise RequestError(f"no shared memory for the request's media: {error}", status=503) from error
        return active

    def close(self) -> None:
        self._admission.close()

    def _spool(self, active: ActiveRequest) -> None:
        """Put the media that came as bytes into shared memory."""
        number, first_unit = next(self._numbers), 0
        request, prompt = active.admitted.request, active.admitted.prompt
        for i, plan in zip(prompt.order, prompt.media, strict=True):
            medium = request.media[i]
            source = MediaSource(plan=plan, name=media_name(i, medium), path=medium.path, first_unit=first_unit)
            first_unit += plan.units
            if medium.data is not None:
                arena = Arena.create(self._arena_name(f"media-{number}-{i}"), len(medium.data))
                active.arenas.append(arena)
                _copy(medium.data, arena.buffer())
                source.arena, source.size = arena.name, len(medium.data)
                medium.data = None  # from here on it is in the arena
            active.sources.append(source)


def _copy(data: bytes, buffer: memoryview) -> None:
    """In pieces, so that other threads get their turns."""
    for start in range(0, len(data), _COPY_BYTES):
        piece = data[start : start + _COPY_BYTES]
        buffer[start : start + len(piece)] = piece
