"""What the steps of a simulated worker took (as `worker/language/measured.py`)."""

from collections.abc import Sequence
from itertools import pairwise

from unifiedserve.messages.costs import Costs
from unifiedserve.scheduling.pacing import learn_encode, learn_step
from unifiedserve.scheduling.state import Pace

_LEARNT = 30  # steps alike, after which what was learnt before has no weight


class Measured:
    """The present costs of steps, and the pace of those that decode."""

    def __init__(self) -> None:
        self.costs = Costs()
        self.pace = Pace()
        self._encoding = 0.0  # when the present batch of the encoder began
        self._between = 0.0  # seconds of forward passes in between its layers

    def stepped(self, decodes: int, prompt_tokens: int, times: Sequence[float]) -> None:
        """Learn from passes alike that followed each other, between these times (seconds)."""
        for start, ended in pairwise(times[-_LEARNT - 1 :]):
            self.costs = learn_step(self.costs, decodes, prompt_tokens, ended - start)
        if decodes:
            self.pace = Pace(times[-2], times[-1])

    def begin_encoding(self, now: float) -> None:
        """Note that a batch of the encoder begins."""
        self._encoding, self._between = now, 0.0

    def went_between(self, seconds: float) -> None:
        """Note how long other work took in between two layers."""
        self._between += seconds

    def encoder_shares(self, now: float) -> bool:
        """Tell whether the encoder has had half of the time since its batch began."""
        return 2 * self._between <= now - self._encoding

    def encoded(self, visual_tokens: int, now: float) -> None:
        """Learn from the batch, which has just ended."""
        self.costs = learn_encode(self.costs, visual_tokens, now - self._encoding - self._between)
