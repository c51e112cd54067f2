"""Order a batch's patches for the vision tower: those that attend to each other side by side.

Everything here counts *tokens*: the merge_size² consecutive patches that become one visual token and stay together.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.device import Device, SequenceGroup


class Geometry(NamedTuple):
    """Hold the numbers that windows and positions depend on besides a grid. `window` is a side in tokens, or None."""

    merge_size: int
    window: int | None
    head_dim: int
    theta: float


class Run(NamedTuple):
    """Name consecutive units (images, temporal groups) of `height` × `width` patches each."""

    height: int
    width: int
    units: int


class Layout(NamedTuple):
    """Order a batch's M tokens, in which sequences of equal length are grouped."""

    order: Tensor  # int64 [M]: the token of the batch at each place
    groups: list[SequenceGroup]
    cos: Tensor  # float32 [M * merge_size², head_dim / 2]: cosines of each row's rotary angles
    sin: Tensor

    def on(self, device: Device) -> "Layout":
        """Return the same on a device."""
        return Layout(device.upload(self.order), self.groups, device.upload(self.cos), device.upload(self.sin))

    def moved_from(self, other: "Layout") -> Tensor:
        """Return where in `other` the token at each place is: int64 [M]."""
        places = torch.empty_like(other.order)
        places[other.order] = torch.arange(len(places))
        return places[self.order]


class GridTable(NamedTuple):
    """Hold the tables that follow from the grid of one unit alone."""

    windows: list[Tensor]  # int64 [windows, tokens of each], one for each size of window
    whole: list[Tensor]  # int64 [1, tokens]: the unit as one sequence
    cos: Tensor  # float32 [tokens, merge_size² * head_dim / 2]
    sin: Tensor


@lru_cache(maxsize=16)
def grid_table(height: int, width: int, geometry: Geometry) -> GridTable:
    rows, columns = height // geometry.merge_size, width // geometry.merge_size
    cos, sin = _angles(rows, columns, geometry)
    windows = [] if geometry.window is None else _windows(rows, columns, geometry.window)
    return GridTable(windows, [torch.arange(rows * columns)[None]], cos, sin)


def window_layout(runs: Sequence[Run], geometry: Geometry) -> Layout:
    """Return the layout for attention within windows."""
    return _layout(runs, geometry, [table.windows for table in _tables(runs, geometry)])


def unit_layout(runs: Sequence[Run], geometry: Geometry) -> Layout:
    """Return the layout for attention within whole units."""
    return _layout(runs, geometry, [table.whole for table in _tables(runs, geometry)])


def rearranged(hidden: Tensor, tokens: Tensor) -> Tensor:
    """Return the rows of `hidden` [N, width] in the order of `tokens` [M]. Each token's are together."""
    return hidden.view(len(tokens), -1).index_select(0, tokens).view(hidden.shape)


def _tables(runs: Sequence[Run], geometry: Geometry) -> list[GridTable]:
    return [grid_table(run.height, run.width, geometry) for run in runs]


def _layout(runs: Sequence[Run], geometry: Geometry, sequences: Sequence[list[Tensor]]) -> Layout:
    """Lay out a batch; `sequences` are those of a unit of each run, by length: int64 [sequences, tokens of each]."""
    by_length: dict[int, list[Tensor]] = {}
    first = 0
    for run, of_unit in zip(runs, sequences, strict=True):
        unit_tokens = sum(tokens.numel() for tokens in of_unit)
        starts = first + torch.arange(run.units)[:, None, None] * unit_tokens
        for tokens in of_unit:
            by_length.setdefault(tokens.shape[1], []).append((starts + tokens).flatten())
        first += run.units * unit_tokens
    pieces, groups, start, patches = [], [], 0, geometry.merge_size**2
    for length, members in by_length.items():
        tokens = torch.cat(members)
        pieces.append(tokens)
        groups.append(SequenceGroup(start, len(tokens) // length, length * patches))
        start += len(tokens) * patches
    order = torch.cat(pieces)
    return Layout(order, groups, *(angles[order].view(start, -1) for angles in _all_angles(runs, geometry)))


def _all_angles(runs: Sequence[Run], geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [M, merge_size² * head_dim / 2] of all tokens, in the batch's order."""
    tables = _tables(runs, geometry)
    cos = torch.cat([table.cos.repeat(run.units, 1) for run, table in zip(runs, tables, strict=True)])
    sin = torch.cat([table.sin.repeat(run.units, 1) for run, table in zip(runs, tables, strict=True)])
    return cos, sin


def _windows(rows: int, columns: int, side: int) -> list[Tensor]:
    """Cut squares of `side` tokens from the top left corner on; at the right and bottom they may be smaller."""
    tokens = torch.arange(rows * columns).view(rows, columns)
    by_size: dict[int, list[Tensor]] = {}
    for y in range(0, rows, side):
        for x in range(0, columns, side):
            window = tokens[y : y + side, x : x + side].flatten()
            by_size.setdefault(len(window), []).append(window)
    return [torch.stack(windows) for windows in by_size.values()]


def _angles(rows: int, columns: int, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of rotary angles: half of a row's frequencies turn with its y, half with its x."""
    size = geometry.merge_size
    half = geometry.head_dim // 2
    frequencies = 1.0 / (geometry.theta ** (torch.arange(0, half, 2, dtype=torch.float) / half))
    y = torch.arange(rows * size).view(rows, 1, size, 1).expand(rows, columns, size, size)
    x = torch.arange(columns * size).view(1, columns, 1, size).expand(rows, columns, size, size)
    angles = (torch.stack([y, x], dim=-1)[..., None].float() * frequencies).view(rows * columns, -1)
    return angles.cos(), angles.sin()
