"""A system of a paper: instances, costs and budgets, and what it does with requests."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simulated.devices import count, placement
from unifiedserve.placement import Stage
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, FreePages, Gpus, Rules, Simulator, StageCosts

PAGE = 16  # tokens of a page of the KV cache, and of the visual buffer
_WHOLE = 1 << 30  # tokens
_PLENTY = 1 << 20  # pages

#: whole prompts in one queue, without a target between tokens: what the papers compare with
PLAIN = Budget(
    prefill_tokens=0,
    encode_tokens=_WHOLE,
    max_running=256,
    kv_page_tokens=PAGE,
    fills=True,
    overlap=False,
    enough=_WHOLE,
)


class System(NamedTuple):
    """Instances on GPUs of their own, such as `5ep+3d`. `kv` are the pages of each instance.

    `interference`: how two streams of an instance slow each other. `profiles`: budgets are tried out at the start.
    """

    name: str
    parts: str
    costs: StageCosts
    budget: Budget = PLAIN
    kv: int = _PLENTY
    interference: Mapping[Stage, Mapping[Stage, float]] = {}
    irp: bool = False
    dual_streams: bool = False
    profiles: bool = False
    rules: Rules = Rules()

    @property
    def devices(self) -> int:
        """Return how many devices it has."""
        return count(self.parts)

    def serve(self, arrivals: Sequence[Arrival]) -> dict[int, list[float]]:
        """Return when (seconds) the tokens of each request come, by its uid."""
        simulator = Simulator(
            placement(self.parts, irp=self.irp),
            self.budget,
            FreePages(self.kv, _PLENTY, _PLENTY, visual_page_tokens=PAGE),
            arrivals,
            self.costs,
            Gpus(self.devices, 0, self.interference),
            self.rules,
            dual_streams=self.dual_streams,
            profiles=self.profiles,
        )
        simulator.run()
        return simulator.tokens


def pages(tokens: int) -> int:
    """Return how many pages so many tokens fill."""
    return -(-tokens // PAGE)
