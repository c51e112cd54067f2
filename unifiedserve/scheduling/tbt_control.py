"""Hold the time between tokens (TBT) at its target: measured gaps set how much heavy work streams get.

The control holds the 99th percentile: of a hundred gaps one may be above the target. Two are too many, and heavy work
gets less at once, in proportion to how far they were off; it gets more again, a little at a time, only after many gaps
well below the target. Between both nothing changes. Where getting more was too much, it is tried again less and less
often: the meaning of a share may change by a step.
"""

from dataclasses import dataclass, replace

WINDOW = 100  # gaps, of which one may be above the target
ALLOWED = 1
SOON = 32  # gaps, all well below the target, after which there is more; so many times `patience`
MOST_PATIENCE = 8
BAND = 0.9  # of the target; between them nothing changes
GROWTH = 1.1  # times; from just below the band it stays below the target
LEAST_CUT, MOST_CUT = 0.95, 0.5
LEAST_SHARE = 1 / 32  # of what it may get alone: heavy work always goes on


@dataclass(frozen=True, slots=True)
class TbtControl:
    """Hold the share that heavy work gets of what it could take. The gaps since its last change are counted.

    tbt    the 99th percentile of the last full window, in seconds; 0: there was none
    """

    share: float = 1.0
    tbt: float = 0.0
    seen: int = 0
    above: int = 0  # the target
    close: int = 0  # or above: beyond the band
    worst: tuple[float, float] = (0.0, 0.0)  # the longest gaps, ascending
    patience: int = 1
    failed: float = 1.0  # the share that was last too much
    calm: int = 0  # gaps since the last cut or growth in which all was well below the target

    def after(self, gap: float, target: float) -> "TbtControl":
        """Return the control after a gap (seconds) in a stream. Heavy work had a part in it."""
        worst = tuple(sorted((*self.worst, gap))[-2:])
        now = replace(
            self,
            seen=self.seen + 1,
            above=self.above + (gap > target),
            close=self.close + (gap > BAND * target),
            worst=(worst[0], worst[1]),
            calm=self.calm + 1,
        )
        if now.above > ALLOWED:
            cut = min(LEAST_CUT, max(MOST_CUT, target / now.worst[0]))
            return now._begin_anew(now.share * cut, min(MOST_PATIENCE, 2 * now.patience), now.share)
        if now.close > ALLOWED:
            now = replace(now, calm=0)
        if now.calm >= SOON * now.patience and now.share < 1:
            patience = now.patience if now.share < now.failed else max(1, now.patience // 2)
            return now._begin_anew(now.share * GROWTH, patience, now.failed)
        if now.seen >= WINDOW:
            return replace(now._begin_anew(now.share, now.patience, now.failed), calm=now.calm)
        return now

    def _begin_anew(self, share: float, patience: int, failed: float) -> "TbtControl":
        share, tbt = min(1.0, max(LEAST_SHARE, share)), self.worst[0] or self.worst[1]
        return TbtControl(share=share, tbt=tbt, patience=patience, failed=failed)
