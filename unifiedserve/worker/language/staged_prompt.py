"""Follow a request from arrival to first token, where it is encoded or prefilled."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from unifiedserve.messages.pages import Pages
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import PrefillRequest
from unifiedserve.placement import Stage
from unifiedserve.scheduling.turn import Shape
from unifiedserve.worker.language.prompt_units import PromptUnits
from unifiedserve.worker.language.token_inputs import TokenInputs
from unifiedserve.worker.language.visual_pages import VisualPages


@dataclass(slots=True, eq=False)
class StagedPrompt:
    """Hold a request, its progress, and all that it has here. `shape` is what the scheduler sees of it."""

    request: PrefillRequest
    shape: Shape
    units: PromptUnits
    inputs: TokenInputs
    visual: VisualPages
    prefix: Pages  # of the KV cache, to be reused
    patches: dict[int, list[int]] = field(default_factory=dict)  # unit -> pages of the patch buffer
    visual_aside: dict[int, list[int]] = field(default_factory=dict)  # unit -> pages of the visual buffer for it
    decoded: bool = False  # no more patches come
    encoding: int = 0  # units in the batch of the encoder
    kv: list[int] = field(default_factory=list)  # pages of the KV cache: all that it will need, or none
    kept: int = 0  # leading ones of them that are remembered
    prefilled: int = 0  # tokens
    pooled: Tensor | None = None  # float32 [hidden] of what was read so far, if it is asked for
    prefilled_elsewhere: bool = False  # its visual tokens go to another memory of this engine, and are cached there
    lent: dict[int, bool] = field(default_factory=dict)  # units with pages of a window; whether these were in the cache
    _uncoded: set[int] = field(default_factory=set)  # units
    _waiting: dict[Stage, float] = field(default_factory=dict)  # since when (monotonic seconds)

    def __post_init__(self) -> None:
        self._uncoded = {number for number, unit in enumerate(self.shape.units) if not unit.encoded}

    @property
    def uid(self) -> int:
        """Return the uid of the request."""
        return self.request.ticket.uid

    @property
    def ticket(self) -> Ticket:
        """Return the request's ticket."""
        return self.request.ticket

    @property
    def complete(self) -> bool:
        """Tell whether the whole prompt is prefilled."""
        return self.prefilled == self.shape.tokens

    @property
    def all_encoded(self) -> bool:
        """Tell whether the visual tokens of all its media are there."""
        return not self._uncoded

    @property
    def done(self) -> bool:
        """Tell whether nothing is left to be done for it here."""
        if self.shape.prefills_here:
            return self.complete
        return self.all_encoded or (self.decoded and not self.patches and not self.encoding)

    @property
    def all_cached(self) -> bool:
        """Tell whether the cache has all visual tokens. Then no medium has to be decoded."""
        return all(unit.encoded or unit.cached for unit in self.shape.units)

    @property
    def wants_tokens(self) -> bool:
        """Tell whether anything is to be generated after the prompt."""
        return self.request.sampling.max_tokens != 0

    @property
    def covered(self) -> int:
        """Return the end of the prefix that must be reused. Its media are not decoded."""
        return self.units.covered(self.request.reuse)

    def wait(self, stage: Stage) -> None:
        """Note that `stage` could work on the prompt from now on."""
        self._waiting.setdefault(stage, time.monotonic())

    def end_wait(self, stage: Stage) -> float | None:
        """Return since when the prompt has waited for `stage`, which begins with it now; None if it has not."""
        return self._waiting.pop(stage, None)

    def take_visual(self, unit: int, pages: list[int]) -> None:
        """Take over the pages of the visual buffer that hold a unit."""
        self.encoded(unit)
        self.visual.add(pages, self.units.rows_of(unit))

    def take_read(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the units with window pages that nobody needs any more, and give these away."""
        needed = self.inputs.rows_needed(self.prefilled)
        for unit in list(self.lent):
            rows = self.units.rows_of(unit)
            if not any(rows.start < part.stop and part.start < rows.stop for part in needed):
                yield unit, self.visual.take(rows)

    def encoded(self, unit: int) -> None:
        """Note that a unit's visual tokens are there."""
        self._uncoded.discard(unit)

    def admit(self, pages: list[int]) -> None:
        """Take over all KV pages that it will need, the reused prefix first."""
        self.kv = pages
        self.kept = len(self.prefix.numbers)

    def hand_over_kv(self) -> list[int]:
        """Return the KV pages, which belong to the caller from now on."""
        pages, self.kv = self.kv, []
        return pages
