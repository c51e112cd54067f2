"""Read ServeGen: production requests of Alibaba as distributions by client (Xiang et al., 2025, arXiv 2505.09999).

github.com/alibaba/ServeGen, data/…/: of each client chunk-N-trace.csv, windows of ten minutes with the rate of requests
and the gamma or Weibull distribution of the gaps between them, and chunk-N-dataset.json, the shapes of its requests
over the day. The rows are drawn from these.
"""

import ast
import functools
import itertools
import json
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.bench.arrivals.spec import finite
from unifiedserve.bench.arrivals.traces.row import Row
from unifiedserve.errors import ConfigError

WINDOW = 600.0  # seconds
_PATTERNS = ("Gamma", "Weibull")


class Window(NamedTuple):
    """Describe ten minutes of a client: how many requests, and the distribution of the gaps between them."""

    start: float
    requests: int
    pattern: str
    shape: float

    def gaps(self, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Draw the gaps before, between and after the requests; they fill the window, so the scale does not matter."""
        shape, size = self.shape, self.requests + 1
        gaps = rng.standard_gamma(shape, size) if self.pattern == "Gamma" else rng.weibull(shape, size)
        return np.asarray(gaps * (WINDOW / gaps.sum()), np.float64)


class Discrete(NamedTuple):
    """Hold values and the probability of each."""

    values: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        drawn: list[int] = rng.choice(self.values, count, p=self.shares).tolist()
        return drawn


class Client(NamedTuple):
    """Hold a client's windows by their starts, and its requests' shapes.

    These are texts, by the second of the day from which they hold.
    """

    number: int
    source: str
    windows: dict[float, Window]
    shapes: dict[float, dict[str, str]]

    def draw(self, quantity: str, start: float, count: int, rng: np.random.Generator) -> list[int]:
        """Draw values of a quantity as in the window at `start`; raises ConfigError if it cannot be read."""
        shapes = self.shapes[max(begin for begin in self.shapes if begin <= start)]
        try:
            return _discrete(shapes[quantity]).draw(count, rng)
        except (ValueError, SyntaxError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{self.source}: {quantity} is unreadable: {error!r}") from None


def read(path: Path, seed: int) -> Iterator[Row]:
    """Yield a day of requests, drawn with the seed, ordered by time; raises ConfigError for a bad archive."""
    clients = _load(path)
    for start in sorted({start for client in clients for start in client.windows}):
        rows = [row for client in clients if start in client.windows for row in _sample(client, start, seed)]
        yield from sorted(rows, key=lambda row: row.at)


def _sample(client: Client, start: float, seed: int) -> Iterator[Row]:
    """Yield a client's requests of one window: as many as it had, with gaps of its distribution."""
    rng = stream(seed, "servegen", client.number, int(start))
    window = client.windows[start]
    times = start + np.minimum(np.cumsum(window.gaps(rng))[:-1], WINDOW)
    text, images, output = (
        client.draw(quantity, start, window.requests, rng)
        for quantity in ("text_tokens", "image_count", "output_tokens")
    )
    visual = iter(client.draw("image_tokens", start, sum(images), rng))
    for at, words, count, answer in zip(times.tolist(), text, images, output, strict=True):
        tokens = tuple(itertools.islice(visual, count))
        yield Row(at=at, input_tokens=words + sum(tokens), output_tokens=answer, images=count, image_tokens=tokens)


def _load(path: Path) -> list[Client]:
    try:
        with tarfile.open(path) as archive:
            files = {Path(member.name).name: archive.extractfile(member) for member in archive if member.isfile()}
            texts = {name: file.read().decode() for name, file in files.items() if file}
    except (tarfile.TarError, EOFError, zlib.error, UnicodeDecodeError):
        raise ConfigError(f"{path}: the archive is damaged or cut short: fetch it again") from None
    numbers = sorted(int(found[1]) for name in texts if (found := re.fullmatch(r"chunk-(\d+)-trace\.csv", name)))
    if not numbers:
        raise ConfigError(f"{path}: an archive without chunk-0-trace.csv is no ServeGen data")
    return [_client(path, number, texts) for number in numbers]


def _client(path: Path, number: int, texts: dict[str, str]) -> Client:
    trace, dataset = f"chunk-{number}-trace.csv", f"chunk-{number}-dataset.json"
    if dataset not in texts:
        raise ConfigError(f"{path}: {dataset} is missing beside {trace}")
    lines = enumerate(texts[trace].splitlines(), 1)
    windows = (_window(f"{path}, {trace}, line {line}", text) for line, text in lines)
    try:
        shapes = {float(start): dict(values) for start, values in json.loads(texts[dataset]).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}, {dataset}: unreadable: {error!r}") from None
    if 0.0 not in shapes:
        raise ConfigError(f"{path}, {dataset}: no shapes from second 0 on")
    busy = {window.start: window for window in windows if window.requests}
    return Client(number, f"{path}, {dataset}", busy, shapes)


def _window(where: str, text: str) -> Window:
    cells = text.split(",")
    if len(cells) != 6:
        raise ConfigError(f"{where}: {len(cells)} columns instead of 6")
    start, rate, pattern = finite(where, cells[0]), finite(where, cells[1]), cells[3]
    if rate and pattern not in _PATTERNS:
        raise ConfigError(f"{where}: the pattern must be Gamma or Weibull, not {pattern!r}")
    return Window(start, round(rate * WINDOW), pattern, finite(where, cells[4], positive=bool(rate)))


@functools.lru_cache(512)
def _discrete(text: str) -> Discrete:
    """Read a dictionary in Python's notation, {value: probability}."""
    shares = ast.literal_eval(text)
    values, weights = np.array(list(shares), np.int64), np.array(list(shares.values()), np.float64)
    if not (len(values) and np.isfinite(weights).all() and min(weights) >= 0 < weights.sum() and min(values) >= 0):
        raise ValueError(f"no probabilities: {text[:40]}")
    return Discrete(values, weights / weights.sum())
