"""Measure the steps of an instance, for its next plans."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from unifiedserve.messages.costs import Costs
from unifiedserve.scheduling.pacing import learn_encode, learn_step
from unifiedserve.scheduling.state import Pace
from unifiedserve.scheduling.step_costs import StepCosts

_LEARNT = 30  # steps alike, after which what was learnt before has no weight


class Measured:
    """Hold the present costs of steps, and the pace of those that decode. Times are in monotonic seconds."""

    def __init__(self, steps: StepCosts) -> None:
        self.costs = Costs()
        self.steps = steps
        self.pace = Pace()
        self._encoding: float | None = None  # when the present batch of the encoder began
        self._between = 0.0  # seconds of forward passes in between its layers

    def stepped(self, decodes: int, prompt_tokens: int, times: Sequence[float]) -> None:
        """Learn from passes alike that followed each other, between these times."""
        for start, ended in pairwise(times[-_LEARNT - 1 :]):
            self.costs = learn_step(self.costs, decodes, prompt_tokens, ended - start)
        if prompt_tokens:
            tokens, seconds = decodes + prompt_tokens, times[-1] - times[-2]
            self.steps = replace(self.steps, passes=self.steps.passes.after(tokens, seconds))
        if decodes:
            self.pace = Pace(times[-2], times[-1])
        if self._encoding is not None:
            self._between += times[-1] - times[0]

    def encoder_shares(self, now: float) -> bool:
        """Tell, between two layers, whether the encoder has had half of the batch's time."""
        if self._encoding is None:
            self._encoding, self._between = now, 0.0
        return 2 * self._between <= now - self._encoding

    def encoded(self, visual_tokens: int, start: float, end: float) -> None:
        """Learn from the batch, which has ended; without tokens there was none."""
        if visual_tokens:
            seconds = end - start - self._between
            self.costs = learn_encode(self.costs, visual_tokens, seconds)
            self.steps = replace(self.steps, batches=self.steps.batches.after(visual_tokens, seconds))
        self._encoding, self._between = None, 0.0
