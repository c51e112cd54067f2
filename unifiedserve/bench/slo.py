"""Define service level objectives: by when the first token is due, and how long a stream may pause."""

from collections.abc import Iterable
from math import inf
from statistics import median

import msgspec

from unifiedserve.bench.metrics.latency import answered, tbts
from unifiedserve.bench.records import Record


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Set targets in seconds. None asks for nothing.

    The first token may take `ttft` and a share for each token of the prompt (visual ones are among them) and each
    second of video, so that a long video is not held to a text's target. A kind of request in `ttft_of_kind` has that
    target instead, for prompts of up to `tokens_of_kind` tokens: longer ones may take longer in proportion.
    """

    ttft: float | None = None
    ttft_per_prompt_token: float = 0.0
    ttft_per_video_second: float = 0.0
    ttft_of_kind: dict[str, float] = {}
    tokens_of_kind: dict[str, float] = {}
    tbt: float | None = None

    @property
    def asks_nothing(self) -> bool:
        """Tell whether there is no target."""
        return self.ttft is None and self.tbt is None and not self.ttft_of_kind

    def ttft_of(self, record: Record) -> float:
        """Return the seconds after its due time by which a turn's first token is owed."""
        if record.kind in self.ttft_of_kind:
            longer = record.prompt_tokens / self.tokens_of_kind.get(record.kind, inf)
            return self.ttft_of_kind[record.kind] * max(1.0, longer)
        if self.ttft is None:
            return inf
        return (
            self.ttft
            + self.ttft_per_prompt_token * record.prompt_tokens
            + self.ttft_per_video_second * record.video_seconds
        )

    @property
    def tbt_limit(self) -> float:
        """Return the seconds that may lie between two tokens."""
        return inf if self.tbt is None else self.tbt

    def scaled(self, factor: float) -> "Slo":
        """Return targets that are so many times as long."""
        return Slo(
            ttft=None if self.ttft is None else factor * self.ttft,
            ttft_per_prompt_token=factor * self.ttft_per_prompt_token,
            ttft_per_video_second=factor * self.ttft_per_video_second,
            ttft_of_kind={kind: factor * seconds for kind, seconds in self.ttft_of_kind.items()},
            tokens_of_kind=self.tokens_of_kind,
            tbt=None if self.tbt is None else factor * self.tbt,
        )


def isolated_slo(records: Iterable[Record]) -> Slo:
    """Return what requests took that were sent one at a time.

    That is the median TTFT of each kind, for prompts of up to the median length, and the median TBT.
    """
    ttft: dict[str, list[float]] = {}
    tokens: dict[str, list[int]] = {}
    gaps: list[float] = []
    for record in records:
        if answered(record):
            ttft.setdefault(record.kind, []).append(record.token_times[0] - record.due)
            tokens.setdefault(record.kind, []).append(record.prompt_tokens)
            gaps += tbts(record).tolist()
    return Slo(
        ttft_of_kind={kind: median(seconds) for kind, seconds in ttft.items()},
        tokens_of_kind={kind: median(counts) for kind, counts in tokens.items() if all(counts)},
        tbt=median(gaps) if gaps else None,
    )
