"""Count what came to an engine since its start, and how it did. A cluster scales by this."""


class Tally:
    """Count the estimated seconds of attempts, and first tokens by whether they were in time."""

    def __init__(self) -> None:
        self.work = 0.0
        self.first_tokens = 0
        self.on_time = 0

    def begin(self, work: float) -> None:
        """Count an attempt that takes so many seconds alone."""
        self.work += work

    def first_token(self, now: float, due: float) -> None:
        """Count a first token that came `now` and was owed by `due` (monotonic seconds)."""
        self.first_tokens += 1
        self.on_time += now <= due
