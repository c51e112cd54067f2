"""Choose how many tokens to draft for a sequence. The fate of its last drafts says how many pay.

A step takes little longer for some rows more, for its time goes into reading the weights. If a drafted token is right
with probability p where those before it are, the i-th one gains p^i tokens: it pays while that is more than its row
costs (Leviathan et al., arXiv:2211.17192, §3.3 and §3.5).
"""

import math
from typing import NamedTuple

_ROW_COST = 0.055  # measured on two cores with weights of 16 bits: a step of eight rows takes 1.39 times that of one
_NEWEST = 0.25  # weight of the newest draft
_SURE = 0.99
_RETRY = 16  # steps after which one token is tried again where none would pay


def row_cost(weight_bits: float) -> float:
    """Return the time of a row more, as a share of a step of one: codes are quicker to read, but not to multiply."""
    return min(_ROW_COST * 16 / weight_bits, 0.5)


class Acceptance(NamedTuple):
    """Estimate the probability that a sequence's next drafted token is right.

    It counts the steps since the last trial.
    """

    rate: float = 0.5
    idle: int = 0

    def length(self, cost: float) -> int:
        """Return the tokens to draft where a row costs so much, see `row_cost`; 0: it would not pay."""
        return int(math.log(cost) / math.log(self.rate)) or int(self.idle >= _RETRY)

    def after(self, drafted: int, accepted: int) -> "Acceptance":
        """Return what is known after a draft of which so many tokens were right."""
        if not drafted:
            return self._replace(idle=self.idle + 1)
        tried = min(accepted + 1, drafted)
        rate = self.rate + _NEWEST * (accepted / tried - self.rate)
        return Acceptance(min(_SURE, max(1 - _SURE, rate)))
