"""Read Mooncake: requests to Kimi, with the prompt blocks that others share (Qin et al., FAST 2025).

github.com/kvcache-ai/Mooncake, FAST25-release/traces: a JSON object a line, times in milliseconds.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from unifiedserve.bench.arrivals.traces.lines import lines
from unifiedserve.bench.arrivals.traces.row import Row
from unifiedserve.errors import ConfigError

BLOCK = 512  # tokens


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def read(path: Path) -> Iterator[Row]:
    """Yield the rows; raises ConfigError for a bad line. Blank lines are skipped."""
    decoder = msgspec.json.Decoder(_Line)
    for number, text in enumerate(lines(path), 1):
        if not text.strip():
            continue
        where = f"{path}, line {number}"
        try:
            line = decoder.decode(text)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{where}: {error}") from None
        _check(where, line)
        yield Row(
            at=line.timestamp / 1000,
            input_tokens=line.input_length,
            output_tokens=line.output_length,
            blocks=line.hash_ids,
            line=number,
        )


def _check(where: str, line: _Line) -> None:
    if min(line.timestamp, line.input_length, line.output_length, *line.hash_ids) < 0:
        raise ConfigError(f"{where}: a number is negative")
    if len(line.hash_ids) != -(-line.input_length // BLOCK):
        raise ConfigError(
            f"{where}: {line.input_length} tokens do not fill {len(line.hash_ids)} blocks of {BLOCK} tokens (hash_ids)"
        )
