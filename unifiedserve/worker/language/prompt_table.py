"""The prompts in a worker: one record each, from arrival until no stage hosted here has work for it."""

from collections.abc import Iterator

from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.wire import PrefillRequest
from unifiedserve.models.base import LanguageAdapter
from unifiedserve.scheduling.turn import Shape
from unifiedserve.worker.language.patch_pages import PatchPages
from unifiedserve.worker.language.prompt_units import PromptUnits
from unifiedserve.worker.language.staged_prompt import StagedPrompt
from unifiedserve.worker.language.token_inputs import TokenInputs
from unifiedserve.worker.language.visual_pages import VisualPages


class PromptTable:
    """Owns the prompts of the instance of this name, and releases the pages that they hold when they leave."""

    def __init__(
        self, adapter: LanguageAdapter, kv: KVCache, patches: PatchPages, visual: RowBuffer, instance: str
    ) -> None:
        self._adapter = adapter
        self._kv = kv
        self._patches = patches
        self._visual = visual
        self._instance = instance
        self._prompts: dict[int, StagedPrompt] = {}

    def __len__(self) -> int:
        return len(self._prompts)

    def __contains__(self, uid: int) -> bool:
        return uid in self._prompts

    def __iter__(self) -> Iterator[StagedPrompt]:
        return iter(self._prompts.values())

    def __getitem__(self, uid: int) -> StagedPrompt:
        """Return a prompt. Raises KeyError if it is not here."""
        return self._prompts[uid]

    def get(self, uid: int) -> StagedPrompt | None:
        """Return a prompt; None if it has left or never came."""
        return self._prompts.get(uid)

    def receive(self, request: PrefillRequest) -> StagedPrompt:
        """Make the record of a request that arrived, and return it; it stays if anything is to be done for it here."""
        prompt = self._record(request)
        self._prompts[prompt.uid] = prompt
        self.drop_if_done(prompt.uid)
        return prompt

    def drop_if_done(self, uid: int) -> None:
        """Drop a prompt for which no stage that is hosted here has work left."""
        if self._prompts[uid].done:
            self.drop(uid)

    def drop(self, uid: int) -> None:
        """Forget a prompt, if it is here, and release all that it holds."""
        prompt = self._prompts.pop(uid, None)
        if prompt is not None:
            for pages in prompt.patches.values():
                self._patches.release(pages)
            for pages in prompt.visual_aside.values():
                self._visual.release(pages)
            self._kv.release(prompt.kv)
            prompt.visual.release()

    def _record(self, request: PrefillRequest) -> StagedPrompt:
        units = PromptUnits.of(request, self._adapter.visual_ids)
        return StagedPrompt(
            request,
            Shape(
                len(request.token_ids),
                self._kv_pages(request),
                units.shapes(request.reuse),
                self._adapter.whole_runs,
                prefills_here=self._instance == request.ticket.route.prefill,
            ),
            units,
            TokenInputs.of(self._adapter, request),
            VisualPages(self._visual),
            request.reuse.prefix,
        )

    def _kv_pages(self, request: PrefillRequest) -> int:
        """Return how many pages the prompt needs with the pages of which each further answer needs its own."""
        tokens = len(request.token_ids)
        changing = self._kv.pages_for(tokens % self._kv.page_size)
        return self._kv.pages_for(tokens) + changing * (len(request.indices) - 1)
