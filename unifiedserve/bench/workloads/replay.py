"""Make requests of a trace's shapes: the same numbers of tokens and images, and the same shared beginnings."""

import itertools
from pathlib import Path

from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.bench.arrivals.traces.mooncake import BLOCK
from unifiedserve.bench.arrivals.traces.row import Row
from unifiedserve.bench.arrivals.traces.trace import Trace
from unifiedserve.bench.requests import Request, Text, Turn
from unifiedserve.bench.workloads.build import Workload, image, medium
from unifiedserve.bench.workloads.text import Writer

TOKEN_PIXELS = 28 * 28  # pixels of an image that become a visual token, Qwen2.5-VL's
_QUESTION = 32  # tokens of text beside images, where the trace does not tell them apart
_IMAGE_TOKENS = (4, 4096)  # the fewest and the most of an image


def replay(trace: Trace, seed: int, writer: Writer, folder: Path, limit: int | None = None) -> Workload:
    """Return a request for each row of a trace, in order. Their media will lie in `folder`.

    No text has more than `limit` tokens: traces hold prompts of more than 100,000. Raises ConfigError if the trace is
    bad.
    """
    numbers = itertools.count()
    workload = Workload([], [])
    for number, row in enumerate(trace.rows(seed)):
        tokens = row.image_tokens or _shares(row)
        rng = stream(seed, "replay", number)
        images = [image(visual * TOKEN_PIXELS, next(numbers), seed, rng) for visual in tokens]
        text = _text(row, number, min(max(1, row.input_tokens - sum(tokens)), limit or row.input_tokens + 1), writer)
        turn = Turn(parts=(*(medium(i, folder) for i in images), text), max_tokens=max(1, row.output_tokens))
        workload.requests.append(Request(id=f"{seed}-{number}", kind="image" if images else "text", turns=(turn,)))
        workload.media.extend(images)
    return workload


def _shares(row: Row) -> tuple[int, ...]:
    """Return the visual tokens of each image where a trace has only their number: equal shares, but for a question."""
    fewest, most = _IMAGE_TOKENS
    share = (row.input_tokens - _QUESTION) // max(1, row.images)
    return (min(max(share, fewest), most),) * row.images


def _text(row: Row, number: int, tokens: int, writer: Writer) -> Text:
    return Text(writer.blocks(row.blocks, BLOCK, tokens) if row.blocks else writer.text(number, tokens))
