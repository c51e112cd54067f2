"""What the steps of a language worker took, for its next plans."""

import time

from unifiedserve.scheduling import Costs, Pace, learn_encode, learn_step


class Measured:
    """The present costs of steps, and the pace of those that decode."""

    def __init__(self) -> None:
        self.costs = Costs()
        self.pace = Pace()
        self._encoding = 0.0  # when the present batch of the encoder began
        self._between = 0.0  # seconds of forward passes in between its layers

    def stepped(self, decodes: int, prompt_tokens: int, start: float, ended: float) -> None:
        """Learn from a forward pass between these times (monotonic seconds)."""
        if decodes:
            self.pace = Pace(start, ended)
        self.costs = learn_step(self.costs, decodes, prompt_tokens, ended - start)

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
