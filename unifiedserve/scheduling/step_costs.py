"""Learn the seconds of steps by their size, and the largest that ends in time."""

from collections.abc import Callable
from dataclasses import dataclass, field

_NEAR = 16  # the part of itself to which a size that is tried is found
_KEPT = 0.9  # weight of what was measured before, at each new step
_APART = 0.01  # squared spread of sizes, over the squared mean, from which on they tell a fixed part


def largest_within(seconds_of: Callable[[int], float], cap: float, most: int, least: int = 0) -> int:
    """Return the largest size up to `most` whose step takes no longer than `cap` seconds.

    `seconds_of` must not fall as sizes grow; it is asked as often as a binary search takes. Nobody asks for `least`,
    which is returned if nothing larger fits.
    """
    if most <= least or seconds_of(most) <= cap:
        return most
    return _halve(seconds_of, cap, least, most, apart=1)


def largest_tried(take: Callable[[int], float], cap: float, most: int, least: int) -> int:
    """Return the largest size whose step ends in time, by trying steps. It is right to within a part of itself.

    Sizes are doubled from the least on until one is too long: nothing is tried that is more than twice too large.
    """
    fits, too_much = least, least
    while too_much <= most and take(too_much) <= cap:
        fits, too_much = too_much, 2 * too_much
    return _halve(take, cap, fits, min(too_much, most + 1), apart=max(1, fits // _NEAR))


def _halve(seconds_of: Callable[[int], float], cap: float, fits: int, too_much: int, apart: int) -> int:
    while too_much - fits > apart:
        middle = (fits + too_much) // 2
        fits, too_much = (middle, too_much) if seconds_of(middle) <= cap else (fits, middle)
    return fits


@dataclass(frozen=True, slots=True)
class Line:
    """Fit a fixed part and a part for each token to the latest steps. Older ones count less and less.

    The sums are over these steps: of weights, tokens, seconds, tokens squared, and tokens times seconds.
    """

    weight: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def after(self, tokens: int, seconds: float) -> "Line":
        """Return the line after one more step."""
        return Line(
            _KEPT * self.weight + 1,
            _KEPT * self.tokens + tokens,
            _KEPT * self.seconds + seconds,
            _KEPT * self.squares + tokens * tokens,
            _KEPT * self.products + tokens * seconds,
        )

    @property
    def parts(self) -> tuple[float, float]:
        """Return the fixed seconds, and those of each token; none are fixed while all steps had much the same size."""
        tokens, seconds = self.tokens / self.weight, self.seconds / self.weight
        spread = self.squares / self.weight - tokens * tokens
        together = self.products / self.weight - tokens * seconds
        if spread < _APART * tokens * tokens or together <= 0:
            return 0.0, seconds / tokens
        token = min(together / spread, seconds / tokens)
        return seconds - token * tokens, token


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Learn the seconds of language passes and encoder batches, each by its tokens."""

    passes: Line = field(default_factory=Line)
    batches: Line = field(default_factory=Line)
