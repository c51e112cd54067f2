"""The parts of a language worker's step in numbers (as `worker/language/forward_step.py` and `encode_step.py`)."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from unifiedserve.config import Stage
from unifiedserve.scheduling.held_streams import HeldStreams
from unifiedserve.scheduling.simulation.clock import Action
from unifiedserve.scheduling.simulation.measured import Measured
from unifiedserve.scheduling.simulation.messages import Encoded, Message, PagesFreed, Prefilled
from unifiedserve.scheduling.simulation.neighbours import Neighbours
from unifiedserve.scheduling.simulation.prompts import Prompts
from unifiedserve.scheduling.simulation.sequences import Sequences
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import Chunk, DecodeState, EncodeWork, Plan

Send = Callable[[Stage, Message], None]


class Work(NamedTuple):
    """How long a part of a step takes alone (seconds), what it has done in the end, and whether it leaves cores to
    others.
    """

    seconds: float
    end: Action
    giving: bool = False


class ForwardStep:
    """Takes prompt chunks and sequences through the language model."""

    def __init__(
        self,
        system: System,
        prompts: Prompts,
        sequences: Sequences,
        measured: Measured,
        streams: HeldStreams,
        neighbours: Neighbours,
        send: Send,
    ) -> None:
        self._system = system
        self._prompts = prompts
        self._sequences = sequences
        self._measured = measured
        self._streams = streams
        self._neighbours = neighbours
        self._send = send

    def begin(self, plan: Plan, *, others_work: bool) -> Work:
        """Take the pages that a plan needs. Without prompts it is for several steps, if they are sure to be alike."""
        for chunk in plan.prefill:
            self._admit(chunk)
        return self._mixed(plan) if plan.prefill else self._decoding(plan, others_work)

    def _admit(self, chunk: Chunk) -> None:
        state = self._prompts[chunk.uid].state
        assert state.prefilled == chunk.start < chunk.stop <= state.reach
        inside = any(unit.position < chunk.stop < unit.position + unit.tokens for unit in state.units)
        assert not (state.whole_units and inside)
        if not state.admitted:
            state.admit()
            self._system.free.kv -= state.kv_pages
            assert self._system.free.kv >= 0, "more prompts are let in than have pages"

    def _mixed(self, plan: Plan) -> Work:
        tokens = sum(chunk.stop - chunk.start for chunk in plan.prefill)
        attended = sum((chunk.stop - chunk.start) * (chunk.start + chunk.stop) / 2 for chunk in plan.prefill)
        context = self._sequences.context(plan.decode)
        self._sequences.grow(plan.decode, 1)
        seconds = self._system.costs.mixed(tokens, attended, len(plan.decode), context)
        return Work(seconds, partial(self._end_mixed, plan, tokens, self._system.clock.now))

    def _end_mixed(self, plan: Plan, tokens: int, start: float) -> None:
        now = self._system.clock.now
        self._end_steps(plan, [start, now], tokens)
        for chunk in plan.prefill:
            self._prefilled(chunk)
        self._send(Stage.ENCODE, PagesFreed())

    def _decoding(self, plan: Plan, giving: bool) -> Work:
        """Take the next step, and those after it if nothing happens meanwhile that could change them."""
        costs, now, batch = self._system.costs, self._system.clock.now, len(plan.decode)
        context, quiet = self._sequences.context(plan.decode), self._system.quiet_until - now
        steps = 1
        if quiet > 0 and not giving and not len(self._prompts):
            steps = self._sequences.steps(plan.decode)
            slowest = costs.decode(batch, context + batch * steps)
            steps = steps if steps * slowest <= quiet else max(1, int(quiet / slowest))
        self._sequences.grow(plan.decode, steps)
        seconds = [costs.decode(batch, context + batch * step, half=giving) for step in range(steps)]
        if steps == 1:
            return Work(seconds[0], partial(self._end_decoding, plan, now), giving)
        times = list(accumulate(seconds, initial=now))
        return Work(times[-1] - now, partial(self._end_steps, plan, times), giving)

    def _end_decoding(self, plan: Plan, start: float) -> None:
        self._end_steps(plan, [start, self._system.clock.now])

    def _end_steps(self, plan: Plan, times: Sequence[float], prompt_tokens: int = 0) -> None:
        for ended in times[1:] if plan.decode else ():
            self._streams.came(plan.decode, ended, prompt_tokens > 0 or self._neighbours.work)
        self._measured.stepped(len(plan.decode), prompt_tokens, times)
        if self._sequences.advance(plan.decode, times[1:]):
            self.freed_by_answers()

    def _prefilled(self, chunk: Chunk) -> None:
        """Advance a prompt; at its end comes the first token."""
        prompt = self._prompts[chunk.uid]
        self._prompts.advance(prompt, chunk.stop)
        if not prompt.complete:
            return
        self._prompts.drop_if_done(chunk.uid)
        state = DecodeState(prompt.state.ticket, 0, chunk.stop + 1, self._system.kv_pages(chunk.stop))
        if self._system.tokens(prompt.request, [self._system.clock.now]):
            self._system.release(prompt.request, state)
        else:
            self._send(Stage.DECODE, Prefilled(prompt.request, state))

    def freed_by_answers(self) -> None:
        """Tell those who may wait for pages that sequences have given theirs back."""
        self._send(Stage.PREFILL, PagesFreed())
        if self._system.rules.keeps_visual:
            self._send(Stage.ENCODE, PagesFreed())


class EncodeStep:
    """Takes units through the vision encoder."""

    def __init__(self, system: System, prompts: Prompts, measured: Measured, send: Send) -> None:
        self._system = system
        self._prompts = prompts
        self._measured = measured
        self._send = send

    def begin(self, work: Sequence[EncodeWork]) -> Work:
        """Begin a batch."""
        self._measured.begin_encoding(self._system.clock.now)
        units = [self._prompts[uid].state.units[number] for uid, numbers in work for number in numbers]
        tokens = sum(unit.tokens for unit in units)
        return Work(self._system.costs.encode(tokens), partial(self._end, work, tokens))

    def _end(self, work: Sequence[EncodeWork], tokens: int) -> None:
        for uid, units in work:
            for unit in units:
                self._prompts.encode(uid, unit)
                self._send(Stage.PREFILL, Encoded(uid, unit))
            self._prompts.drop_if_done(uid)
        self._measured.encoded(tokens, self._system.clock.now)
        self._send(Stage.VISION, PagesFreed())
