"""Keep the prompts in a worker: one record each, from arrival until no stage hosted here has work for it."""

from collections.abc import Collection, Iterable, Iterator

from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.wire import PrefillRequest
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.placement import ENGINE
from unifiedserve.scheduling.turn import Shape, UnitShape
from unifiedserve.worker.language.held import Held
from unifiedserve.worker.language.patch_pages import PatchPages
from unifiedserve.worker.language.prompt_units import PromptUnits
from unifiedserve.worker.language.staged_prompt import StagedPrompt
from unifiedserve.worker.language.token_inputs import TokenInputs
from unifiedserve.worker.language.visual_pages import VisualPages


class PromptTable:
    """Own the prompts of the instance of this name. It releases their pages when they leave."""

    def __init__(
        self,
        adapter: LanguageAdapter,
        kv: KVCache,
        patches: PatchPages,
        visual: RowBuffer,
        instance: str,
        elsewhere: Collection[str] = (),
    ) -> None:
        """Begin without prompts; the instances `elsewhere` have another memory."""
        self._adapter = adapter
        self._kv = kv
        self._patches = patches
        self._visual = visual
        self._instance = instance
        self._elsewhere = elsewhere
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

    def held(self) -> list[Held]:
        """Return the KV pages and the visual tokens that the prompts hold. Visual tokens are of the visual buffer."""
        return [Held(prompt.kv, prompt.visual.numbers) for prompt in self]

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
        units, route = PromptUnits.of(request, self._adapter.visual_ids), request.ticket.route
        here, shapes = self._instance == route.prefill, units.shapes(request.reuse)
        comes = here and (request.reuse.offers or not set(route.encode).isdisjoint(self._elsewhere))
        return StagedPrompt(
            request,
            Shape(
                len(request.token_ids),
                self._kv_pages(request),
                shapes,
                self._adapter.whole_runs,
                prefills_here=here,
                room_pages=self._room_pages(shapes) if comes else 0,
                window=request.window.half if request.window else 0,
            ),
            units,
            TokenInputs.of(self._adapter, request),
            VisualPages(self._visual),
            request.reuse.prefix,
            prefilled_elsewhere=route.prefill in self._elsewhere and route.prefill != ENGINE,
        )

    def _room_pages(self, units: Iterable[UnitShape]) -> int:
        """Return how many pages the visual tokens need that come from another memory."""
        return sum(self._visual.pages_for(unit.tokens) for unit in units if not unit.encoded)

    def _kv_pages(self, request: PrefillRequest) -> int:
        """Return the prompt's pages with those that each further answer needs of its own."""
        tokens = len(request.token_ids)
        changing = self._kv.pages_for(tokens % self._kv.page_size)
        return self._kv.pages_for(tokens) + changing * (len(request.indices) - 1)
