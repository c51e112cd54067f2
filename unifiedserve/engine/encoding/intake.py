"""Record prompts whose media are encoded for another node."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ipc_buffers import ArenaError
from unifiedserve.config import EngineConfig
from unifiedserve.engine.admission.admission import PlannedRequest
from unifiedserve.engine.caches import contents_of
from unifiedserve.engine.requests.answer import Answer
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.spool import Spool
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.memory.shared import EngineLayout
from unifiedserve.messages.api import GenerateRequest, MediaInput
from unifiedserve.messages.encoding import EncodeRequest, Features
from unifiedserve.messages.media import ExpandedPrompt
from unifiedserve.messages.pages import Window
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.seen import RequestPages
from unifiedserve.models.processor import Processor
from unifiedserve.scheduling.vision import BufferPages, patch_window_of, total_of

_POOLS = ("patch", "visual")


class EncodeIntake:
    """Take in what other nodes have checked and planned. Blocking (media are copied): call it from threads."""

    def __init__(
        self,
        config: EngineConfig,
        processor: Processor,
        layout: EngineLayout,
        features: Features,
        arena_name: Callable[[str], str],
    ) -> None:
        self._config = config
        self._processor = processor
        self._layout = layout
        self._features = features
        self._arena_name = arena_name
        self._numbers = itertools.count(1)

    def check(self, asked: EncodeRequest) -> None:
        """Raise RequestError (CONFLICT) if another node means other visual tokens than this one has."""
        if difference := self._features.difference(asked.features):
            raise RequestError(f"nodes do not fit together: {difference}", ErrorKind.CONFLICT)

    def take(self, asked: EncodeRequest, request: GenerateRequest, arrival: float) -> ActiveRequest:
        """Return the record of what is asked for, with the media of `request`.

        Raises RequestError for what can never be encoded here.
        """
        (pages, window), media = self._pages(asked), request.media
        spool = Spool(self._arena_name, next(self._numbers))
        try:
            spool.take(media)
        except ArenaError as error:
            spool.close()
            raise RequestError(f"no shared memory for the request's media: {error}", ErrorKind.NO_ROOM) from error
        prompt = ExpandedPrompt(asked.token_ids, asked.media, list(range(len(asked.media))))
        sampling = SamplingParams(max_tokens=0)
        active = ActiveRequest(
            PlannedRequest(request, prompt, sampling, [], pages, window),
            arrival,
            [Answer(self._processor.tokenizer, sampling, len(prompt.token_ids))],
            spool=spool,
            to_encode=asked.tokens,
        )
        active.sources = [
            msgspec.structs.replace(source, where=medium.where)
            for source, medium in zip(asked.sources, media, strict=True)
        ]
        if asked.digests:
            active.contents = contents_of(
                prompt,
                set(self._processor.visual_ids.values()),
                asked.digests,
                self._config.memory.kv_page_tokens,
                self._processor.keeps_visual_rows,
            )
        return active

    @staticmethod
    def request(asked: EncodeRequest, data: Sequence[bytes]) -> GenerateRequest:
        """Return what is asked for as a request that brings the media's bytes."""
        media = [
            MediaInput(kind=source.plan.kind, param=source.param, data=each, frames=source.frames)
            for source, each in zip(asked.sources, data, strict=True)
        ]
        return GenerateRequest(id=asked.id, media=media, priority=asked.priority)

    def _pages(self, asked: EncodeRequest) -> tuple[RequestPages, Window | None]:
        """Return the pages that a request takes. Patches that do not fit go through a window: encoded ones make room.

        Raises RequestError if a buffer has fewer pages.
        """
        units, sizes = list(self._units(asked)), {pool: self._layout.smallest(pool)[1].pages for pool in _POOLS}
        window = patch_window_of(units, sizes["patch"])
        needed = BufferPages(window.patch, window.visual) if window else total_of(units)
        for pool, pages in zip(_POOLS, needed, strict=True):
            if pages > sizes[pool]:
                raise RequestError(
                    f"the request needs {pages} pages of an encode node's {pool} buffer, which has {sizes[pool]}: ask "
                    f"for less, or start encode nodes with a larger --{pool}-buffer-mib",
                    param="messages",
                    code="buffer_too_small",
                )
        return RequestPages(*needed, 0), window

    def _units(self, asked: EncodeRequest) -> Iterator[BufferPages]:
        sizes = self._config.memory
        for source in asked.sources:
            patch = -(-source.plan.patches_per_unit // sizes.patch_page_rows)
            for unit in source.wanted:
                yield BufferPages(patch, -(-source.plan.unit_tokens(unit) // sizes.visual_page_tokens))
