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

    def stepped(self, decodes: int, prompt_tokens: int, times: Sequence[float]) -> None:
        """Learn from passes alike that followed each other, between these times (seconds)."""
        for start, ended in pairwise(times[-_LEARNT - 1 :]):
            self.costs = learn_step(self.costs, decodes, prompt_tokens, ended - start)
        if decodes:
            self.pace = Pace(times[-2], times[-1])

    def encoded(self, visual_tokens: int, seconds: float) -> None:
        """Learn from a batch of the encoder."""
        self.costs = learn_encode(self.costs, visual_tokens, seconds)
