"""Read BurstGPT: requests to ChatGPT and GPT-4 on Azure (Wang et al., 2024, arXiv 2401.17644)."""

from collections.abc import Iterator
from pathlib import Path

from unifiedserve.bench.arrivals.traces.lines import table
from unifiedserve.bench.arrivals.traces.row import Row

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")  # among others, which differ between its versions


def read(path: Path) -> Iterator[Row]:
    """Yield the requests that were answered, those with response tokens; raises ConfigError for a bad line."""
    time, request, response = COLUMNS
    for cells in table(path):
        at, tokens, answer = cells.number(time), cells.whole(request), cells.whole(response)
        if answer:
            yield Row(at=at, input_tokens=tokens, output_tokens=answer, line=cells.line)
