"""Decode over all ranks, where each has a device with a decoder of its own: all launch the same steps."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unifiedserve.device import Decoder, DecodeRow, DecodeStep
from unifiedserve.ranks.leader import all_of_them
from unifiedserve.ranks.messages import Forget, Launch, Prepare
from unifiedserve.ranks.model import PartOfModel


class LeadingDecoder:
    """Run rank 0's decoder, and tell the others. Its methods raise OutOfStepError as those of `Leader`."""

    def __init__(self, own: Decoder, part: PartOfModel) -> None:
        self.rows = own.rows
        self._own = own
        self._part = part
        self._told = defaultdict[int, int](int)  # how many pages of a row

    @property
    def wants(self) -> bool:
        return self._own.wants

    @property
    def eager_steps(self) -> int:
        return self._own.eager_steps

    def launch(self, rows: Sequence[DecodeRow], draw: Callable[[Tensor], Tensor]) -> DecodeStep:
        known = [self._told[row.number] for row in rows]
        changes = [row._replace(pages=row.pages[told:]) for row, told in zip(rows, known, strict=True)]
        self._told |= {row.number: len(row.pages) for row in rows}
        with all_of_them(self._part.group, Launch(changes, known)):
            return self._own.launch(rows, lambda logits: self._shared(draw(logits)))

    def forget(self, row: int) -> None:
        self._told.pop(row, None)
        with all_of_them(self._part.group, Forget(row)):
            self._own.forget(row)

    def prepare(self) -> None:
        if self.wants:
            with all_of_them(self._part.group, Prepare()):
                self._own.prepare()

    def _shared(self, tokens: Tensor) -> Tensor:
        """Let the others have the tokens that were drawn here."""
        tokens = tokens.contiguous()
        self._part.exchange.broadcast(tokens)
        return tokens


class FollowingDecoder:
    """Run the decoder of another rank as rank 0 tells."""

    def __init__(self, own: Decoder, part: PartOfModel) -> None:
        self._own = own
        self._part = part
        self._pages: dict[int, list[int]] = {}

    def take_part(self, message: Launch | Forget | Prepare) -> None:
        """Do what is told."""
        match message:
            case Launch(rows, known):
                self._own.launch([self._whole(row, told) for row, told in zip(rows, known, strict=True)], self._drawn)
            case Forget(row):
                self._pages.pop(row, None)
                self._own.forget(row)
            case Prepare():
                self._own.prepare()

    def _whole(self, row: DecodeRow, known: int) -> DecodeRow:
        """Return a row with all of its pages."""
        pages = self._pages.setdefault(row.number, [])
        del pages[known:]
        pages += row.pages
        return row._replace(pages=pages)

    def _drawn(self, logits: Tensor) -> Tensor:
        """Return the tokens int64 [n] that rank 0 has drawn."""
        tokens = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        self._part.exchange.broadcast(tokens)
        return tokens
