"""Batch decode continuously, with preemption by recompute."""

from collections.abc import Sequence

from unifiedserve.scheduling.state import DecodeState

Key = tuple[int, int]


def schedule_decode(
    sequences: Sequence[DecodeState], kv_free: int, page_tokens: int, max_running: int
) -> tuple[list[Key], list[Key]]:
    """Return the sequences (uid, index) that step next, and those that must give pages back.

    They come in the order of their turns, priority, then age, whatever the order of service: a stream that has begun
    is not held up by one that begins. When the pages for growth run out, the last in turn is preempted: the
    first then always finishes, so the engine cannot livelock.
    """
    running = list(sequences)
    preempted: list[Key] = []
    while True:
        batch = running[:max_running]
        growth = sum(max(0, _pages(s.num_tokens, page_tokens) + s.state_pages - s.pages) for s in batch)
        if growth <= kv_free or not running:
            return [sequence.key for sequence in batch], preempted
        last = running.pop()
        kv_free += last.pages
        preempted.append(last.key)


def _pages(tokens: int, page_tokens: int) -> int:
    return -(-tokens // page_tokens)
