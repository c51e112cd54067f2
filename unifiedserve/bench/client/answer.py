"""Follow an answer as it comes: its text, and when each of its tokens came."""

from unifiedserve.bench.client.events import Choice, Chunk, Delta, Usage
from unifiedserve.bench.records import Record, Timed


class Answer:
    """Fill a record with the chunks of an answer. Thoughts and tool calls are tokens, but none of its text."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._arrivals: list[tuple[float, int]] = []  # of chunks, with their characters
        self._tokens: int | None = None
        self.first_token: dict[str, float] = {}  # log probabilities of the likeliest ones, if they were asked for

    def take(self, now: float, chunk: Chunk) -> None:
        """Add a chunk that came at `now`."""
        self._record.answer = self._record.answer or chunk.id or ""
        for choice in chunk.choices or ():
            self._take_choice(now, choice, choice.delta or Delta())
        if chunk.usage:
            self._take_usage(chunk.usage)

    def _take_choice(self, now: float, choice: Choice, delta: Delta) -> None:
        record = self._record
        record.text += delta.content or ""
        if choice.token_ids is not None:
            record.token_times += [now] * len(choice.token_ids)
        if delta.length or (delta.content is not None and delta.role is None):
            self._arrivals.append((now, delta.length))
        if choice.logprobs and choice.logprobs.content and not (self.first_token or delta.thoughts):
            self.first_token = {top.token: top.logprob for top in choice.logprobs.content[0].top_logprobs}

    def _take_usage(self, usage: Usage) -> None:
        self._record.prompt_tokens = usage.prompt_tokens or 0
        if usage.prompt_tokens_details:
            self._record.cached_tokens = usage.prompt_tokens_details.cached_tokens or 0
        self._tokens = usage.completion_tokens

    def settle(self) -> None:
        """Tell the tokens' times from those of the chunks, if the server gave no ids."""
        record = self._record
        if not record.token_times:
            record.token_times, record.timed = spread(self._arrivals, self._tokens)


def spread(arrivals: list[tuple[float, int]], tokens: int | None) -> tuple[list[float], Timed]:
    """Return a time for each of `tokens` that came in chunks (time, characters). The second value is how it was found.

    Each chunk has one token; those beyond are shared out by characters, so that their number is right and each has the
    time of a chunk. Of chunks beyond the tokens the last ones, which end an answer, have none.
    """
    times = [time for time, _ in arrivals]
    if tokens is None or not arrivals or tokens == len(times):
        return times, "chunk"
    more = tokens - len(times)
    if more < 0:
        return times[:tokens], "chunk"
    whole = sum(length for _, length in arrivals) or 1
    counts, seen, given = [], 0, 0
    for _, length in arrivals:
        seen += length
        due = round(more * seen / whole)
        counts.append(1 + due - given)
        given = due
    counts[-1] += more - given
    return [time for time, count in zip(times, counts, strict=True) for _ in range(count)], "characters"
