"""The prompts in a simulated worker, and the pages that they hold (as `worker/language/prompt_table.py`)."""

from dataclasses import dataclass, field

from unifiedserve.config import Order
from unifiedserve.scheduling.queue import Queue
from unifiedserve.scheduling.simulation.messages import Request
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import PrefillState, Unit


@dataclass(slots=True, eq=False)
class Prompt:
    """A request, what the scheduler sees of it, and what it holds of the visual buffer here."""

    request: Request
    state: PrefillState
    held: list[Unit] = field(default_factory=list)  # units whose visual tokens are there

    @property
    def complete(self) -> bool:
        """Tell whether all of it is prefilled."""
        return self.state.prefilled == self.state.num_tokens


class Prompts:
    """Owns them, from their arrival until no stage that is hosted here has work for them."""

    def __init__(self, system: System, order: Order, *, prefills: bool) -> None:
        self._system = system
        self._prefills = prefills
        self._prompts: dict[int, Prompt] = {}
        self._queue: Queue[PrefillState] = Queue(order)
        self.promised = 0  # pages of the visual buffer that are set aside here, and not yet written

    def __len__(self) -> int:
        return len(self._prompts)

    def __getitem__(self, uid: int) -> Prompt:
        return self._prompts[uid]

    def in_turn(self) -> list[PrefillState]:
        """Return what the scheduler sees of them, in the order in which they are served now."""
        return self._queue.in_turn(self._system.clock.now)

    def begin(self, request: Request) -> None:
        """Take a request in, unless nothing is to be done for it here."""
        state = self._state(request)
        self._prompts[request.uid] = Prompt(request, state)
        self._queue.add(state)
        self.drop_if_done(request.uid)

    def ready(self, uid: int, unit: int) -> None:
        """Note that the patches of a unit are there."""
        self._prompts[uid].state.decode_unit(unit)

    def encode(self, uid: int, number: int) -> None:
        """Encode a unit: its patches leave their buffer, its visual tokens take the pages set aside for it."""
        prompt = self._prompts[uid]
        unit = prompt.state.units[number]
        assert unit.ready
        assert not unit.encoded
        if not prompt.state.reserved:
            prompt.state.reserve()
            self.promised += prompt.state.visual_pages
        prompt.state.encode_unit(number)
        self.promised -= unit.pages
        self._system.free.visual -= unit.pages
        self._system.free.patch += prompt.request.arrival.patch_pages
        assert self._system.free.visual >= 0, "pages that were promised are gone"

    def take_encoded(self, uid: int, number: int) -> None:
        """Take over a unit's visual tokens, wherever they were encoded."""
        prompt = self._prompts[uid]
        if not prompt.state.reserved:
            prompt.state.reserve()
        prompt.state.encode_unit(number)
        prompt.held.append(prompt.state.units[number])

    def advance(self, prompt: Prompt, stop: int) -> None:
        """Note that all before `stop` is prefilled: visual tokens leave, unless answers need them."""
        prompt.state.prefill(stop)
        if not self._system.rules.keeps_visual:
            done = [unit for unit in prompt.held if unit.position + unit.tokens <= stop]
            if done:
                self._system.free.visual += sum(unit.pages for unit in done)
                prompt.held = [unit for unit in prompt.held if unit.position + unit.tokens > stop]

    def drop_if_done(self, uid: int) -> None:
        """Drop a prompt for which no stage that is hosted here has work left."""
        prompt = self._prompts[uid]
        if prompt.complete or (not self._prefills and prompt.state.all_encoded):
            del self._prompts[uid]
            self._queue.remove(prompt.state)

    def _state(self, request: Request) -> PrefillState:
        """Return what the scheduler sees: what was generated before a preemption is part of the prompt."""
        arrival, rules, position, units = request.arrival, self._system.rules, 0, []
        for gap, tokens in zip(arrival.gaps, arrival.units, strict=False):
            position += gap
            units.append(Unit(tokens, 0 if rules.keeps_visual else position, self._system.visual_pages(tokens)))
            position += 0 if rules.keeps_visual else tokens
        total = position + arrival.gaps[-1] + len(request.tokens)
        return PrefillState(request.ticket, total, self._system.kv_pages(total), units, whole_units=rules.whole_units)
