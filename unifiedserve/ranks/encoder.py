"""Run one rank's part of batches of the vision encoder: some of their units.

Batches have numbers, because one may begin while another stands still between two layers.
"""

from collections.abc import Callable, Generator, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from unifiedserve.messages.media import MediaPlan
from unifiedserve.ranks.group import Group

Units = Sequence[tuple[MediaPlan, int]]
#: what encodes uint8 patches [N, row_bytes] of whole units into tokens [M, width], and yields before each layer
EncodeLayers = Callable[[Tensor, Units], Generator[None, None, Tensor]]

_PATIENCE = 40  # times as long may a rank take whose part has more passes over the layers than others'


def spread(sizes: Sequence[int], parts: int) -> list[range]:
    """Return consecutive ranges of things of these positive sizes, about equally large; the first has one at least."""
    ends = list(accumulate(sizes, initial=0))
    bounds = [0]
    for number in range(1, parts):
        wanted = ends[-1] * number / parts
        nearest = min(range(len(ends)), key=lambda place: abs(ends[place] - wanted))
        bounds.append(max(bounds[-1], nearest, min(1, len(sizes))))
    return [range(*each) for each in pairwise([*bounds, len(sizes)])]


class PartOfEncoder:
    """Do a rank's part of the encoder: every method is called on all ranks, in the same order."""

    def __init__(self, group: Group, encode: EncodeLayers, dtype: torch.dtype, device: torch.device) -> None:
        """Take the encoder that this rank runs on a device, for tokens of a dtype."""
        self.group = group
        self._device = device
        self._ranks = group.part.encoder.ranks
        self._encode = encode
        self._dtype = dtype
        self._batches: dict[int, _Batch] = {}

    def follow(self, number: int, rows: int, row_bytes: int, units: Units) -> None:
        """Begin a batch of so many rows, which the first rank has."""
        self.begin(number, torch.empty(rows, row_bytes, dtype=torch.uint8, device=self._device), units)

    def begin(self, number: int, patches: Tensor, units: Units) -> None:
        """Begin a batch; `patches` of other ranks than the first are overwritten."""
        patches = patches.contiguous()
        self.group.exchange.broadcast(patches)
        singles = [plan for plan, count in units for _ in range(count)]
        parts = spread([plan.tokens_per_unit for plan in singles], self._ranks.data)
        part = parts[self.group.part.rank // self._ranks.tensor]
        tokens = [sum(singles[unit].tokens_per_unit for unit in each) for each in parts]
        first = sum(plan.patches_per_unit for plan in singles[: part.start])
        own = [(singles[unit], 1) for unit in part]
        rows = patches[first : first + sum(plan.patches_per_unit for plan, _ in own)]
        self._batches[number] = _Batch(self._encode(rows, _joined(own)) if own else None, tokens)

    def layer(self, number: int) -> Tensor | None:
        """Go on to the next layer of this rank's part; return its tokens when they are there.

        Ranks wait for each other, so that none is far behind when a step of the language model comes between.
        """
        tokens = self._batches[number].advance()
        self.group.meet(patience=_PATIENCE)
        return tokens

    def finish(self, number: int, width: int) -> Tensor:
        """End a batch whose tokens are so wide; return all of them [M, width] on rank 0, and this rank's on others."""
        batch = self._batches.pop(number)
        own = torch.zeros(max(batch.tokens), width, dtype=self._dtype, device=self._device)
        if (tokens := batch.run()) is not None:
            own[: len(tokens)] = tokens
        if not self.group.leads:
            self.group.exchange.gather(own, None, _PATIENCE)
            return own
        every = own.new_empty(self.group.part.ranks, *own.shape)
        self.group.exchange.gather(own, every, _PATIENCE)
        first_of_groups = every[:: self._ranks.tensor]
        return torch.cat([part[:count] for part, count in zip(first_of_groups, batch.tokens, strict=True)])

    def drop(self, number: int) -> None:
        """Give a batch up."""
        self._batches.pop(number).close()


class DividedBlocks:
    """Join the ranks that each have some heads and inner columns of a tower."""

    def __init__(self, group: Group | None) -> None:
        """Take the group of the tower's rank; None: this process has the whole tower."""
        part = group.part.encoder if group else None
        self.ranks = part.ranks.tensor if part else 1
        self._leads = part is None or part.leads
        self._exchange = group.exchange_of_encoder if group else None

    def summand(self, hidden: Tensor) -> Tensor:
        """Return what this rank adds its products to: one rank's is `hidden`, the others' is zero."""
        return hidden if self._leads else torch.zeros_like(hidden)

    def summed(self, hidden: Tensor) -> Tensor:
        """Return the sum over the ranks, in place of what this one has."""
        if self._exchange:
            self._exchange.all_reduce(hidden)
        return hidden


class _Batch:
    """Hold a batch under way: a rank's layers, if it has a part, and each group's tokens."""

    def __init__(self, layers: Generator[None, None, Tensor] | None, tokens: list[int]) -> None:
        self.tokens = tokens
        self._layers = layers
        self._done: Tensor | None = None

    def advance(self) -> Tensor | None:
        if self._layers is not None and self._done is None:
            try:
                next(self._layers)
            except StopIteration as ended:
                self._done = ended.value
        return self._done

    def run(self) -> Tensor | None:
        while self._layers is not None and self.advance() is None:
            pass
        return self._done

    def close(self) -> None:
        if self._layers is not None:
            self._layers.close()


def _joined(units: Units) -> list[tuple[MediaPlan, int]]:
    """Return units of the same medium in a row as one entry."""
    joined: list[tuple[MediaPlan, int]] = []
    for plan, count in units:
        if joined and joined[-1][0] is plan:
            joined[-1] = (plan, joined[-1][1] + count)
        else:
            joined.append((plan, count))
    return joined
