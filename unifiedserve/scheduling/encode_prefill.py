"""Orchestrate prefill and encode (UnifiedServe Alg. 3): two token budgets a step, one for each stage.

Requests go in the order of their queue; encoding is batched ahead of prefill up to a budget of its own, and goes on
while prefill waits for KV pages. While a long request is first in turn, half of each step is kept for short ones: no
text waits behind a video, and the video goes on in every step.
"""

from collections.abc import Collection, Iterable, Iterator

from unifiedserve.messages.ticket import Place
from unifiedserve.scheduling.pacing import LEAST_PROMPT
from unifiedserve.scheduling.state import Budget, Chunk, EncodeWork, PrefillState, State

_UNLIMITED = 1 << 60


def schedule_encode(state: State, budget: Budget) -> list[EncodeWork]:
    """Return the ready units to encode now; at least one if any is.

    Beside short requests one unit is encoded of those that are not, as their tokens come when all of the batch is done;
    or the batch is filled, where the budget says so.
    """
    step = _EncodeStep(budget)
    ready = (request for request in state.prefills if request.to_encode)
    short = _overtaking(ready, budget, budget.encode_tokens // 2)
    if short:
        step.fill(short, budget.encode_tokens // 2)
    left = budget.encode_tokens - step.tokens if budget.fills else 1
    step.fill(state.prefills, left if step.work else budget.encode_tokens)
    return step.work


def schedule_prefill(state: State, budget: Budget, beside_decode: bool = False) -> list[Chunk]:
    """Return the prompt chunks to prefill now, if they merit a pass.

    They are if they fill the budget or bring a prompt to its end. Less is left to grow, because a request whose media
    are in decoding gets all of its tokens without more being prefilled, unless it has a window that is full. Beside
    sequences that decode, which read the weights anyway, every token counts. A step that ends a prompt is filled no
    further than is efficient, because first tokens do not wait for one another. A chunk ends before a unit that must be
    whole and does not fit the budget; one that begins with it takes all of it all the same. A request gets all of its
    KV pages at its first chunk. Pages for the growth of running decodes are kept back, unless nothing holds any. A step
    takes no longer than short prompts may wait for it; one that ends a short prompt takes along only short ones.
    """
    step = _PrefillStep(state, budget)
    ready = (request for request in state.prefills if request.reach > request.prefilled)
    short = _overtaking(ready, budget, budget.prefill_tokens // 2)
    if short:
        step.fill(short, budget.prefill_tokens // 2)
    step.fill(state.prefills, budget.prefill_tokens or _UNLIMITED)
    return step.chunks if step.worth or beside_decode else []


def schedule_in_between(state: State, budget: Budget, encoding: Collection[int], sharing: bool) -> list[Chunk]:
    """Return the chunks of short prompts that fit between layers of the encoder.

    The encoder is at work on `encoding`. The prompts have no visual tokens, which might still be on their way, are of
    no lower class and overtake nobody who waits for KV pages. They come before these requests (uids) in turn. If the
    encoder is `sharing`, because it has had half of the time, they may come later.
    """
    step = _PrefillStep(state, budget)
    step.fill(_in_between(state, budget, encoding, sharing), budget.prefill_tokens or _UNLIMITED)
    return step.chunks if step.worth else []


def first_without_pages(state: State, budget: Budget, begun: Collection[PrefillState]) -> Place | None:
    """Return the place of the first that KV pages keep out when these are admitted. None if all come in."""
    free = state.kv_free - sum(request.kv_pages for request in begun if not request.admitted)
    first = next((request for request in state.prefills if request.waits_for_pages and request not in begun), None)
    if first is None or _fits(first.kv_pages, free, state.kv_total, budget.kv_reserve):
        return None
    return first.place


def _in_between(state: State, budget: Budget, encoding: Collection[int], sharing: bool) -> Iterator[PrefillState]:
    lowest: int | None = None  # class that may go
    for request in state.prefills:
        ticket = request.ticket
        if lowest is not None and ticket.priority > lowest:
            return
        if ticket.uid in encoding:
            if not sharing:
                return
            lowest = ticket.priority
        elif not request.units and _is_short(request, budget):
            yield request
        elif not request.admitted and request.reach > request.prefilled:
            return


def _overtaking(ready: Iterable[PrefillState], budget: Budget, most: int) -> list[PrefillState]:
    """Return short requests of the first's priority that come before it, up to `most` tokens."""
    if not budget.short_tokens or not most:
        return []
    found: list[PrefillState] = []
    first = None
    for request in ready:
        if first is None:
            first = request
        if request.ticket.priority > first.ticket.priority or most <= 0:
            break
        if _is_short(request, budget):
            if request is first:
                break
            found.append(request)
            most -= request.tokens_left
    return found


class _EncodeStep:
    """Fill a batch of the encoder."""

    def __init__(self, budget: Budget) -> None:
        self.work: list[EncodeWork] = []
        self.tokens = 0
        self._budget = budget
        self._taken: set[int] = set()  # uids

    def fill(self, requests: Iterable[PrefillState], left: int) -> None:
        """Add units for up to `left` tokens; at least one."""
        begun = short = False
        for request in requests:
            if left <= 0 or (short and not self._budget.fills and not _is_short(request, self._budget)):
                return
            if request.to_encode and request.ticket.uid not in self._taken and self._may_begin(request):
                units = self._units(request, left, begun)
                if not units:
                    return
                begun, short = True, short or _is_short(request, self._budget)
                cost = sum(request.units[number].cost for number in units)
                left, self.tokens = left - cost, self.tokens + cost
                self._taken.add(request.ticket.uid)
                self.work.append(EncodeWork(request.ticket.uid, units))

    def _may_begin(self, request: PrefillState) -> bool:
        return self._budget.overlap or request.decoded

    @staticmethod
    def _units(request: PrefillState, left: int, begun: bool) -> list[int]:
        units: list[int] = []
        for number in request.to_encode:
            cost = request.units[number].cost
            if cost > left and (begun or units):
                break
            left -= cost
            units.append(number)
        return units


class _PrefillStep:
    """Collect the prompt chunks of a forward pass."""

    def __init__(self, state: State, budget: Budget) -> None:
        self.chunks: list[Chunk] = []
        self.worth = False
        self._state = state
        self._budget = budget
        self._kv_free = state.kv_free
        self._admitting = True
        self._longest = _longest(budget, state.costs.prompt_token)
        self._taken = 0  # tokens
        self._ends = False  # a prompt

    def fill(self, requests: Iterable[PrefillState], most: int) -> None:
        """Add chunks until the step has `most` tokens. If it ends a prompt it takes what is efficient."""
        chosen = {chunk.uid for chunk in self.chunks}
        if self._ends:
            most = min(most, max(self._budget.enough, 2 * self._taken))
        short = False
        for request in requests:
            if self._taken >= most or (short and not _is_short(request, self._budget)):
                break
            if request.reach <= request.prefilled or request.ticket.uid in chosen or not self._may_begin(request):
                continue
            most = self._add(request, most)
            ended = self.chunks[-1].stop == request.num_tokens
            short = short or (ended and _is_short(request, self._budget))
        self.worth = self.worth or self._ends or self._taken >= most

    def _may_begin(self, request: PrefillState) -> bool:
        if not (self._budget.overlap or request.all_encoded):
            return False
        if request.admitted:
            return True
        if not request.waits_for_pages:
            return False
        state, pages = self._state, request.kv_pages
        first = state.first_elsewhere is None or request.place <= state.first_elsewhere
        fits = first and _fits(pages, self._kv_free, state.kv_total, self._budget.kv_reserve)
        self._admitting = self._admitting and fits
        if self._admitting:
            self._kv_free -= pages
        return self._admitting

    def _add(self, request: PrefillState, most: int) -> int:
        """Add a chunk; return how many tokens the step may have after it."""
        room = most - self._taken
        if not _is_short(request, self._budget):
            room = min(room, max(LEAST_PROMPT, self._longest - self._taken))
        stop = request.chunk_end(room)
        self.worth = self.worth or request.window_is_full
        self._taken += stop - request.prefilled
        self.chunks.append(Chunk(request.ticket.uid, request.prefilled, stop))
        if stop == request.num_tokens:
            self._ends = True
            return min(most, self._budget.enough)
        return self._taken if stop < request.reach else most  # full, though a whole unit may leave some of it


def _longest(budget: Budget, prompt_token: float) -> int:
    """Return the most tokens of a step with a prompt that is not short. A token takes so many seconds.

    It has some in any case: shorter steps would cost more a token, and so get shorter still.
    """
    if not (budget.short_tokens and prompt_token):
        return _UNLIMITED
    return int(min(max(LEAST_PROMPT, budget.step_seconds / prompt_token), _UNLIMITED))


def _is_short(request: PrefillState, budget: Budget) -> bool:
    return request.work <= budget.short_tokens


def _fits(pages: int, free: int, total: int, reserve: int) -> bool:
    return pages + reserve <= free or (free == total and pages <= free)
