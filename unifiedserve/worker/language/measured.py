"""What the steps of a language worker took, for its next plans."""

from unifiedserve.scheduling import Costs, Pace, learn_encode, learn_step


class Measured:
    """The present costs of steps, and the pace of those that decode."""

    def __init__(self) -> None:
        self.costs = Costs()
        self.pace = Pace()
        self.between = 0.0  # seconds, in all, of forward passes in between layers of the encoder

    def stepped(self, decodes: int, prompt_tokens: int, start: float, ended: float) -> None:
        """Learn from a forward pass between these times (monotonic seconds)."""
        if decodes:
            self.pace = Pace(start, ended)
        self.costs = learn_step(self.costs, decodes, prompt_tokens, ended - start)

    def encoded(self, visual_tokens: int, seconds: float) -> None:
        """Learn from a batch of the encoder."""
        self.costs = learn_encode(self.costs, visual_tokens, seconds)
