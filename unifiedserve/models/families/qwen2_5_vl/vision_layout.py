"""In which order the vision tower computes the patches of a batch: those that attend to each other side by side.

Everything here counts *tokens*: the merge_size² consecutive patches that become one visual token and stay together.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class Geometry(NamedTuple):
    """What windows and positions depend on besides a grid; `window` is a side in tokens."""

    merge_size: int
    window: int
    head_dim: int
    theta: float


class Run(NamedTuple):
    """Consecutive units (images, temporal groups) of `height` × `width` patches each."""

    height: int
    width: int
    units: int


class Group(NamedTuple):
    """Sequences of `length` patches each, which fill the rows from `start` on."""

    start: int
    sequences: int
    length: int


class Layout(NamedTuple):
    """An order of a batch's M tokens, in which sequences of equal length are grouped."""

    order: Tensor  # int64 [M]: which token of the batch is at each place
    groups: list[Group]
    cos: Tensor  # float32 [M * merge_size², head_dim / 2]: of each row's rotary angles
    sin: Tensor

    def moved_from(self, other: "Layout") -> Tensor:
        """int64 [M]: where in `other` the token at each place is."""
        places = torch.empty_like(other.order)
        places[other.order] = torch.arange(len(places))
        return places[self.order]


class GridTable(NamedTuple):
    """What follows from the grid of one unit alone."""

    windows: list[Tensor]  # int64 [windows, tokens of each], one for each size of window
    whole: list[Tensor]  # int64 [1, tokens]: the unit as one sequence
    cos: Tensor  # float32 [tokens, merge_size² * head_dim / 2]
    sin: Tensor


@lru_cache(maxsize=16)
def grid_table(height: int, width: int, geometry: Geometry) -> GridTable:
    rows, columns = height // geometry.merge_size, width // geometry.merge_size
    cos, sin = _angles(rows, columns, geometry)
    return GridTable(_windows(rows, columns, geometry.window), [torch.arange(rows * columns)[None]], cos, sin)


def layouts(runs: Sequence[Run], geometry: Geometry) -> tuple[Layout, Layout]:
    """The layouts for attention within windows and within whole units."""
    tables = [grid_table(run.height, run.width, geometry) for run in runs]
    cos, sin = (
        torch.cat([angles.repeat(run.units, 1) for run, angles in zip(runs, column, strict=True)])
        for column in ([table.cos for table in tables], [table.sin for table in tables])
    )
    windows, whole = [], []
    first = 0
    for run, table in zip(runs, tables, strict=True):
        starts = first + torch.arange(run.units)[:, None, None] * len(table.cos)
        windows += [(starts + tokens).flatten(0, 1) for tokens in table.windows]
        whole += [(starts + tokens).flatten(0, 1) for tokens in table.whole]
        first += run.units * len(table.cos)
    patches = geometry.merge_size**2
    return _layout(windows, cos, sin, patches), _layout(whole, cos, sin, patches)


def _layout(sequences: Iterable[Tensor], cos: Tensor, sin: Tensor, patches: int) -> Layout:
    """Of sequences given as int64 [sequences, tokens of each]; a token is `patches` rows."""
    by_length: dict[int, list[Tensor]] = {}
    for tokens in sequences:
        by_length.setdefault(tokens.shape[1], []).append(tokens)
    pieces, groups, start = [], [], 0
    for length, members in by_length.items():
        tokens = torch.cat(members).flatten()
        pieces.append(tokens)
        groups.append(Group(start, len(tokens) // length, length * patches))
        start += len(tokens) * patches
    order = torch.cat(pieces)
    return Layout(order, groups, *(angles[order].view(len(order) * patches, -1) for angles in (cos, sin)))


def _windows(rows: int, columns: int, side: int) -> list[Tensor]:
    """Squares of `side` tokens from the top left corner on; those at the right and bottom edges may be smaller."""
    tokens = torch.arange(rows * columns).view(rows, columns)
    by_size: dict[int, list[Tensor]] = {}
    for y in range(0, rows, side):
        for x in range(0, columns, side):
            window = tokens[y : y + side, x : x + side].flatten()
            by_size.setdefault(len(window), []).append(window)
    return [torch.stack(windows) for windows in by_size.values()]


def _angles(rows: int, columns: int, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Cosine and sine of rotary angles: half of a row's frequencies turn with its y, the others with its x."""
    size = geometry.merge_size
    half = geometry.head_dim // 2
    frequencies = 1.0 / (geometry.theta ** (torch.arange(0, half, 2, dtype=torch.float) / half))
    y = torch.arange(rows * size).view(rows, 1, size, 1).expand(rows, columns, size, size)
    x = torch.arange(columns * size).view(1, columns, 1, size).expand(rows, columns, size, size)
    angles = (torch.stack([y, x], dim=-1)[..., None].float() * frequencies).view(rows * columns, -1)
    return angles.cos(), angles.sin()
