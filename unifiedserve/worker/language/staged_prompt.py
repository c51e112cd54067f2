"""A request between its arrival and its first token, in a worker that encodes or prefills it."""

import time
from dataclasses import dataclass, field

from torch import Tensor

from unifiedserve.config import Stage
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.wire import PrefillRequest
from unifiedserve.scheduling import PrefillState
from unifiedserve.worker.language.prompt_units import PromptUnits
from unifiedserve.worker.language.token_inputs import TokenInputs
from unifiedserve.worker.language.visual_pages import VisualPages


@dataclass(slots=True, eq=False)
class StagedPrompt:
    """The request, what the scheduler sees of it, how far it has come, and all that it holds here."""

    request: PrefillRequest
    state: PrefillState
    units: PromptUnits
    inputs: TokenInputs
    visual: VisualPages
    kv_needed: int  # KV pages, those that are reused included
    prefix: Pages  # of the KV cache, to be reused
    patches: dict[int, list[int]] = field(default_factory=dict)  # unit -> pages of the patch buffer
    promised: int = 0  # pages of the visual buffer that are set aside for it here, and not yet written
    kv: list[int] = field(default_factory=list)  # pages of the KV cache
    kept: int = 0  # leading ones of them that are remembered
    pooled: Tensor | None = None  # float32 [hidden] of what was read so far, if it is asked for
    _waiting: dict[Stage, float] = field(default_factory=dict)  # since when (monotonic seconds)

    @property
    def uid(self) -> int:
        """Return the uid of the request."""
        return self.state.ticket.uid

    @property
    def complete(self) -> bool:
        """Tell whether the whole prompt is prefilled."""
        return self.state.prefilled == self.state.num_tokens

    @property
    def wants_tokens(self) -> bool:
        """Tell whether anything is to be generated after the prompt."""
        return self.request.sampling.max_tokens != 0

    @property
    def covered(self) -> int:
        """Return the end of the prompt prefix that must be reused, because its media are not decoded."""
        return self.units.covered(self.request.reuse)

    def wait(self, stage: Stage) -> None:
        """Note that `stage` could work on the prompt from now on."""
        self._waiting.setdefault(stage, time.monotonic())

    def end_wait(self, stage: Stage) -> float | None:
        """Return since when the prompt has waited for `stage`, which begins with it now; None if it has not."""
        return self._waiting.pop(stage, None)

    def take_patches(self, unit: int, pages: list[int]) -> None:
        """Take over the pages of the patch buffer that hold a unit."""
        self.patches[unit] = pages
        self.state.decode_unit(unit)

    def reserve(self, pages: int) -> None:
        """Set `pages` of the visual buffer aside, which with those that are set aside elsewhere hold all units."""
        if not self.state.reserved:
            self.state.reserve()
            self.promised = pages

    def written(self, pages: int) -> None:
        """Note that a unit has taken `pages` that were promised here."""
        self.promised -= pages

    def encoded(self, unit: int) -> None:
        """Note that a unit's visual tokens are there."""
        self.state.encode_unit(unit)

    def take_visual(self, unit: int, pages: list[int]) -> None:
        """Take over the pages of the visual buffer that hold a unit: where it was encoded, all are set aside."""
        self.reserve(0)
        self.encoded(unit)
        self.visual.add(pages, self.units.rows_of(unit))

    def begin_behind(self, prefix: Pages, tokens: int, in_use: int) -> None:
        """Plan to reuse the `tokens` in `prefix`, of whose pages `in_use` need not be taken from the free ones."""
        self.prefix = prefix
        self.state.kv_pages = self.kv_needed - in_use
        self.advance(tokens)

    def admit(self, pages: list[int]) -> None:
        """Take over all KV pages that it will need, the reused prefix first."""
        self.kv = pages
        self.kept = len(self.prefix.numbers)
        self.state.admit()

    def advance(self, stop: int) -> None:
        """Note that the KV of all tokens before `stop` is there."""
        self.state.prefill(stop)

    def hand_over_kv(self) -> list[int]:
        """Return the KV pages, which belong to the caller from now on."""
        pages, self.kv = self.kv, []
        return pages
