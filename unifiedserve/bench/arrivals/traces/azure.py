"""Read traces of Azure's services of language models.

2023, text: Splitwise (Patel et al., ISCA 2024). 2025, text and images: ModServe (Qiu et al., SoCC 2025). Both are at
github.com/Azure/AzurePublicDataset. A third layout has the 2025 one's rows with seconds from the first request.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from unifiedserve.bench.arrivals.traces.lines import Cells, table
from unifiedserve.bench.arrivals.traces.row import Row
from unifiedserve.errors import ConfigError

LLM = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
LMM = ("TIMESTAMP", "NumImages", "ContextTokens", "GeneratedTokens")
SECONDS = ("arrival_time", "input_tokens", "output_tokens")


def read_llm(path: Path) -> Iterator[Row]:
    """Yield the rows of an LLM trace; raises ConfigError for a bad line."""
    for cells in table(path):
        yield _row(cells, _moment(cells), *LLM[1:])


def read_lmm(path: Path) -> Iterator[Row]:
    """Yield the rows of an LMM trace; raises ConfigError for a bad line."""
    for cells in table(path):
        yield msgspec.structs.replace(_row(cells, _moment(cells), *LMM[2:]), images=cells.whole(LMM[1]))


def read_seconds(path: Path) -> Iterator[Row]:
    """Yield the rows of a trace whose times are seconds; raises ConfigError for a bad line."""
    for cells in table(path):
        yield _row(cells, cells.number(SECONDS[0]), *SECONDS[1:])


def _row(cells: Cells, at: float, context: str, generated: str) -> Row:
    return Row(at=at, input_tokens=cells.whole(context), output_tokens=cells.whole(generated), line=cells.line)


def _moment(cells: Cells) -> float:
    """Return the seconds since 1970 of a time such as 2023-11-16 18:17:03.9799600; without a zone it is UTC."""
    text = cells["TIMESTAMP"]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{cells.where}: TIMESTAMP must be like 2024-10-15T12:00:00.269Z, not {text!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
