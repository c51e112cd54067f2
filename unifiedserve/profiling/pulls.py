"""Measure pages read from another memory: the timeline's reads, by what they brought."""

from collections.abc import Mapping, Sequence

from unifiedserve.placement import Stage
from unifiedserve.profiling.asking import Asker, Work
from unifiedserve.profiling.effort import Effort
from unifiedserve.profiling.found import Found
from unifiedserve.profiling.samples import Samples
from unifiedserve.profiling.spans import Span, named

_KINDS = {Stage.PREFILL: "visual", Stage.DECODE: "kv"}  # what pages a stage reads


async def measure_pulls(asker: Asker, works: Sequence[Work], page_bytes: Mapping[str, int], effort: Effort) -> Found:
    """Return the costs of reads and of their pages, `page_bytes` each. The server's stages have own memories."""
    spans: list[Span] = []
    for work in works:
        for _ in effort.rounds():
            spans += await asker.spans(await asker.ask(work))
    return pull_costs(spans, page_bytes)


def pull_costs(spans: Sequence[Span], page_bytes: Mapping[str, int]) -> Found:
    """Return the costs of reads and of their pages from the spans of some."""
    kinds, samples = list(page_bytes), Samples()
    for stage, kind in _KINDS.items():
        for span in named(spans, stage, "pull"):
            pages = round(span.bytes / page_bytes[kind])
            samples.add([1, *(pages if each == kind else 0 for each in kinds)], span.seconds)
    if not samples:
        return Found()
    once, *each = samples.fit()
    costs = {"pull": once, **{f"pull_{kind}_page": cost for kind, cost in zip(kinds, each, strict=True)}}
    return Found(costs, {"pull": samples.spread})
