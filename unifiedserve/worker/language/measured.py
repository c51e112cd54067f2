"""What the steps of a language worker took, for its next plans."""

import time
from collections.abc import Collection

from unifiedserve.scheduling import Budget, Costs, Pace, TbtControl, blend, learn_encode, learn_step
from unifiedserve.worker.language.sampler import Key


class Measured:
    """The present costs of steps, and the pace of those that decode."""

    def __init__(self, share: float = 1.0) -> None:
        self.costs = Costs()
        self.pace = Pace()
        self.control = TbtControl(share)
        self._streams: frozenset[Key] = frozenset()
        self.alone = 0.0  # seconds between tokens lately while nothing else was done
        self._encoding = 0.0  # when the present batch of the encoder began
        self._between = 0.0  # seconds of forward passes in between its layers

    def stepped(self, decodes: int, prompt_tokens: int, start: float, ended: float) -> None:
        """Learn from a forward pass between these times (monotonic seconds)."""
        if decodes:
            self.pace = Pace(start, ended)
        self.costs = learn_step(self.costs, decodes, prompt_tokens, ended - start)

    def streamed(self, keys: Collection[Key], ended: float, beside: bool, budget: Budget) -> None:
        """Learn that these sequences got a token, before their step is learnt from; whether it had heavy work beside
        it, for which the budget may have a target that is to be held.
        """
        gap, streams = ended - self.pace.ended, self._streams
        self._streams = frozenset(keys)
        if streams.isdisjoint(keys):
            return
        if not beside:
            self.alone = blend(self.alone, gap)
        elif budget.holds:
            self.control = self.control.after(gap, max(budget.slo_tbt, budget.pace * self.alone))

    def begin_encoding(self) -> None:
        """Note that a batch of the encoder begins."""
        self._encoding, self._between = time.monotonic(), 0.0

    def went_between(self, seconds: float) -> None:
        """Note how long other work took in between two layers."""
        self._between += seconds

    @property
    def encoder_shares(self) -> bool:
        """Tell whether the encoder has had half of the time since its batch began."""
        return 2 * self._between <= time.monotonic() - self._encoding

    def encoded(self, visual_tokens: int) -> None:
        """Learn from the batch, which has just ended."""
        seconds = time.monotonic() - self._encoding - self._between
        self.costs = learn_encode(self.costs, visual_tokens, seconds)
