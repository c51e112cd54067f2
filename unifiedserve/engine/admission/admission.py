"""Admit requests: check one and plan what is done for it.

Everything that can be wrong with a request is found here, before any stage sees it: media that cannot be
read, prompts that are too long, buffers that are too small for it even when all else is idle.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from unifiedserve.config import EngineConfig
from unifiedserve.engine.admission.buffers import check_buffers
from unifiedserve.engine.admission.context import Context
from unifiedserve.engine.admission.decode_time import check_decode_time
from unifiedserve.engine.admission.grammar_check import GrammarChecker
from unifiedserve.engine.admission.media import MediaInfo, inspect, plan
from unifiedserve.engine.admission.seen import seen
from unifiedserve.engine.admission.workload import Workload
from unifiedserve.errors import RequestError
from unifiedserve.memory.shared import EngineLayout
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.messages.pages import Window
from unifiedserve.messages.sampling_params import ParamError, SamplingParams
from unifiedserve.messages.seen import RequestPages, SeenMedium
from unifiedserve.models.processor import ExpandedPrompt, MediaPlan, Processor, PromptError
from unifiedserve.reading.readers import Cancellation, ReadHere, Reading
from unifiedserve.sampling.grammar import GrammarError, tokenizer_json
from unifiedserve.scheduling import Outlook, Work


@dataclass(frozen=True)
class PlannedRequest:
    """Hold a request that can be served.

    It has its prompt with media plans (in prompt order) and complete sampling parameters. `media` is what is told of
    these media, and `pages` what the request takes; media that do not fit into their buffers go through a `window`.
    `work` is known of requests about whose media clients asked.
    """

    request: GenerateRequest
    prompt: ExpandedPrompt
    sampling: SamplingParams
    media: list[SeenMedium]
    pages: RequestPages
    window: Window | None = None
    work: Work | None = None


class Admission:
    """Check and plan requests. Blocking (media are analysed): call it from a thread."""

    def __init__(
        self, config: EngineConfig, processor: Processor, layout: EngineLayout, reading: Reading | None = None
    ) -> None:
        """Admit what fits into buffers of this `layout`; media are read by `reading`, or in this process."""
        self._config = config
        self._processor = processor
        self._layout = layout
        self._reading = reading or ReadHere()
        self._grammars = GrammarChecker(
            lambda: tokenizer_json(processor.tokenizer),
            processor.vocab_size,
            processor.eos_token_ids,
            confined=config.machine.sandbox != "off",
        )
        longest = processor.context_length
        self.max_model_len = min(config.checkpoint.max_model_len or longest, longest)
        self._context = Context(processor, self.max_model_len)

    def admit(
        self, request: GenerateRequest, outlook: Outlook | None = None, cancellation: Cancellation | None = None
    ) -> PlannedRequest:
        """Return the plan of a request. Raises RequestError saying what is wrong, with the numbers.

        By the `outlook` a request with a limit for its first token is looked at in fewer frames; `cancellation` ends
        the reading of its media.
        """
        self._check_task(request)
        try:
            self._check_sampling(request.sampling)
            return self._plan(request, outlook or Outlook(), cancellation)
        except GrammarError as error:
            raise RequestError(f"the grammar of the answer: {error}", param=request.grammar_param) from error
        except ParamError as error:
            raise RequestError(str(error), param=error.param) from error
        except PromptError as error:
            raise RequestError(str(error), param=error.param or request.prompt_param) from error

    def close(self) -> None:
        """End the processes that check grammars and read media."""
        self._grammars.close()
        self._reading.close()

    def _check_task(self, request: GenerateRequest) -> None:
        if (self._processor.pooling is not None) != request.embed:
            raise RequestError(
                "this model generates text and makes no embeddings"
                if request.embed
                else "this model makes embeddings (POST /v1/embeddings) and generates no text",
                param="model",
                code="unsupported",
            )

    def _check_sampling(self, sampling: SamplingParams) -> None:
        sampling.check()
        highest = max(sampling.logit_bias, default=0)
        if highest >= self._processor.vocab_size:
            vocabulary = self._processor.vocab_size
            raise ParamError("logit_bias", f"has token {highest}, which is not in the vocabulary of {vocabulary}")
        if sampling.grammar is not None:
            self._grammars.check(sampling.grammar)

    def _plan(self, request: GenerateRequest, outlook: Outlook, cancellation: Cancellation | None) -> PlannedRequest:
        infos = inspect(request.media, self._config.media.max_image_pixels, self._reading, cancellation)
        plans: Sequence[MediaPlan] = plan(self._processor, request.media, infos)
        prompt = self._context.prompt(request, infos, plans)
        workload = Workload(self._processor, request.media, infos, self._reading, cancellation)
        if request.max_ttft is not None:
            text_tokens = workload.text_tokens(prompt)
            fewer = workload.in_time(plans, text_tokens, outlook, request.max_ttft)
            if fewer != plans:
                plans, prompt = fewer, self._context.prompt(request, infos, fewer)
        check_decode_time(request.media, infos, plans, workload, self._config.media.max_decode_seconds)
        sampling = self._complete(request.sampling, len(prompt.token_ids))
        rolls = not self._processor.keeps_visual_rows
        pages, window = check_buffers(self._config, self._layout, prompt, sampling, rolls=rolls)
        media = [self._seen(request, i, infos[i], plans[i], workload) for i in prompt.order]
        work = workload.work(plans, workload.text_tokens(prompt)) if request.tell_media else None
        return PlannedRequest(request, prompt, sampling, media, pages, window, work)

    def _seen(
        self, request: GenerateRequest, number: int, info: MediaInfo, plan: MediaPlan, workload: Workload
    ) -> SeenMedium:
        medium = request.media[number]
        decoding = workload.decoding(medium, plan) if request.tell_media else None
        return seen(self._config, medium, info, plan, decoding)

    def _complete(self, sampling: SamplingParams, prompt_tokens: int) -> SamplingParams:
        """Resolve `max_tokens` and `seed`. Raises RequestError for an answer that the context does not hold."""
        room = self._context.room(sampling, prompt_tokens)
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed  # a recomputation draws alike
        _, kv = self._layout.smallest("kv")
        cached = (kv.pages // sampling.n - self._layout.state_pages) * self._config.memory.kv_page_tokens
        longest = max(1, min(room, cached - prompt_tokens + 1))
        max_tokens = longest if sampling.max_tokens is None else sampling.max_tokens
        return msgspec.structs.replace(sampling, max_tokens=max_tokens, seed=seed)
