"""Record requests: checked, planned, their media identified and where vision can read them."""

import contextlib
import itertools
from collections.abc import Callable, Iterator

from ipc_buffers import ArenaError
from unifiedserve.config import EngineConfig
from unifiedserve.engine.admission.admission import Admission, PlannedRequest
from unifiedserve.engine.admission.media import media_name
from unifiedserve.engine.caches import PromptContents, contents_of
from unifiedserve.engine.media_digest import MediaDigests
from unifiedserve.engine.requests.answer import Answer
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.resume import resume
from unifiedserve.engine.requests.spool import Spool
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.memory.shared import EngineLayout
from unifiedserve.messages.api import GenerateRequest, TokenLogprob
from unifiedserve.messages.seen import RequestPlan
from unifiedserve.messages.wire import MediaSource
from unifiedserve.models.processor import Processor
from unifiedserve.reading.readers import Cancellation, Reading
from unifiedserve.scheduling import Outlook


class Intake:
    """Take requests in. Blocking (media are analysed, hashed and copied): call it from threads."""

    def __init__(
        self,
        config: EngineConfig,
        processor: Processor,
        layout: EngineLayout,
        reading: Reading,
        arena_name: Callable[[str], str],
    ) -> None:
        """Create an intake for pools of this `layout`; `arena_name` makes names for arenas of the engine."""
        self._admission = Admission(config, processor, layout, reading)
        self._processor = processor
        self._arena_name = arena_name
        cached = not config.memory.no_prefix_cache or config.memory.visual_cache_mib
        self._keyed = cached or config.machine.workers.encoded_elsewhere
        self._page_tokens = config.memory.kv_page_tokens
        self._digests = MediaDigests()
        self._numbers = itertools.count(1)
        self.max_model_len = self._admission.max_model_len

    def take(
        self, request: GenerateRequest, arrival: float, outlook: Outlook, cancellation: Cancellation | None = None
    ) -> ActiveRequest:
        """Return the request's record. Raises RequestError saying what is wrong with it; then nothing is held.

        `cancellation` ends the reading of its media.
        """
        spool = Spool(self._arena_name, next(self._numbers))
        try:
            with _naming_media():
                spool.take(request.media)
                active = self._record(self._admission.admit(request, outlook, cancellation), arrival)
                if self._keyed:
                    active.contents = self._contents(active.planned)
        except BaseException:
            spool.close()
            raise
        active.spool = spool
        active.sources = self._sources(active.planned)
        return active

    def plan(self, request: GenerateRequest, outlook: Outlook, cancellation: Cancellation | None = None) -> RequestPlan:
        """Return what would be done for a request; nothing of it is held. Raises RequestError as `take`."""
        spool = Spool(self._arena_name, next(self._numbers))
        try:
            with _naming_media():
                spool.take(request.media)
                planned = self._admission.admit(request, outlook, cancellation)
        finally:
            spool.close()
        return RequestPlan(
            prompt_tokens=len(planned.prompt.token_ids),
            max_tokens=planned.sampling.max_tokens or 0,
            pages=planned.pages,
            media=planned.media,
            expected_ttft=outlook.first_token(planned.work) if planned.work else None,
        )

    def close(self) -> None:
        """End the processes that check grammars and read media."""
        self._admission.close()

    def _record(self, planned: PlannedRequest, arrival: float) -> ActiveRequest:
        prompt, sampling = planned.prompt, planned.sampling
        scored = sampling.prompt_logprobs is not None
        prompt_logprobs = [TokenLogprob(token) for token in prompt.token_ids] if scored else None
        answers = [
            Answer(
                self._processor.tokenizer,
                sampling,
                len(prompt.token_ids),
                special_text=planned.request.special_text,
                prompt_logprobs=prompt_logprobs,
                media=planned.media if planned.request.tell_media else None,
            )
            for _ in range(sampling.n)
        ]
        active = ActiveRequest(planned, arrival, answers, prompt_logprobs=prompt_logprobs)
        resume(active, self._processor.eos_token_ids, self._processor.vocab_size)
        return active

    def _contents(self, planned: PlannedRequest) -> PromptContents:
        prompt, media = planned.prompt, planned.request.media
        known = {medium.where: self._digests.of(medium) for medium in {each.where: each for each in media}.values()}
        digests = [known[media[i].where] for i in prompt.order]
        visual_ids = set(self._processor.visual_ids.values())
        return contents_of(prompt, visual_ids, digests, self._page_tokens, self._processor.keeps_visual_rows)

    def _sources(self, planned: PlannedRequest) -> list[MediaSource]:
        """Return where the vision stage finds the media, in the order of the prompt."""
        sources, first_unit = [], 0
        for i, plan, seen in zip(planned.prompt.order, planned.prompt.media, planned.media, strict=True):
            medium = planned.request.media[i]
            source = MediaSource(plan=plan, name=media_name(i, medium), param=medium.param, where=medium.where)
            source.first_unit, source.frames = first_unit, medium.frames
            source.pixels = seen.width * seen.height
            sources.append(source)
            first_unit += plan.units
        return sources


@contextlib.contextmanager
def _naming_media() -> Iterator[None]:
    """Have errors about media that cannot be read, or find no room, be the request's."""
    try:
        yield
    except OSError as error:
        raise RequestError(f"a medium cannot be read: {error}", param="messages") from error
    except ArenaError as error:
        raise RequestError(f"no shared memory for the request's media: {error}", ErrorKind.NO_ROOM) from error
