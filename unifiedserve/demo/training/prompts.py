"""Several conversations about one clip as one sequence.

The clip's visual tokens come once, the conversations one after another. Each sees the clip and itself only, and has the
positions that it would have alone: for the model each is a prompt of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from unifiedserve.demo.world.questions import Turn
from unifiedserve.models.checkpoint_files import TOKENS_PER_SECOND

SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
IGNORED = -100
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Sequences:
    """[clips, length] token ids, branches (0: the clip's prefix, -1: padding), and what each token should predict.

    `turns` numbers the answers from 0 over the whole batch, -1 elsewhere; `positions` is [3, clips, length].
    """

    ids: Numbers
    branches: Numbers
    targets: Numbers
    turns: Numbers
    positions: Numbers


class Writer:
    """Writes conversations as token ids, as the checkpoint's template does."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._prefix = self._ids(SYSTEM)
        vocabulary = tokenizer.get_vocab()
        self._pads = {kind: vocabulary[f"<|{kind}_pad|>"] for kind in ("image", "video")}
        self._nothing = vocabulary["<|endoftext|>"]

    def prefix(self, kind: str, groups: int, grid: tuple[int, int]) -> list[int]:
        return [*self._prefix, *[self._pads[kind]] * (groups * grid[0] * grid[1])]

    def branch(self, turns: Sequence[Turn]) -> tuple[list[int], list[int]]:
        """Token ids after the visual tokens, and for each the number of the turn whose answer it belongs to, or -1."""
        ids, owners = self._ids("<|vision_end|>"), [-1]
        for number, turn in enumerate(turns):
            opening = "" if number == 0 else "\n<|im_start|>user\n"
            question = self._ids(f"{opening}{turn.question}<|im_end|>\n<|im_start|>assistant\n")
            answer = self._ids(f"{turn.answer}<|im_end|>")
            ids += question + answer
            owners += [-1] * len(question) + [number] * len(answer)
        return ids, owners

    def sequences(
        self,
        kind: str,
        groups: int,
        grid: tuple[int, int],
        seconds: Sequence[float],
        conversations: Sequence[Sequence[Sequence[Turn]]],
    ) -> Sequences:
        """For clips of the same size: `seconds` between their groups, and their conversations."""
        prefix = self.prefix(kind, groups, grid)
        rows = []
        asked = 0
        for talks in conversations:
            ids, branches, owners = list(prefix), [0] * len(prefix), [-1] * len(prefix)
            for number, turns in enumerate(talks, 1):
                said, owned = self.branch(turns)
                ids += said
                branches += [number] * len(said)
                owners += [asked + owner if owner >= 0 else -1 for owner in owned]
                asked += len(turns)
            rows.append((ids, branches, owners))
        all_ids = _padded([row[0] for row in rows], self._nothing)
        all_branches = _padded([row[1] for row in rows], -1)
        all_owners = _padded([row[2] for row in rows], -1)
        positions = [
            self._positions(groups, grid, interval, own) for interval, own in zip(seconds, all_branches, strict=True)
        ]
        return Sequences(
            ids=all_ids,
            branches=all_branches,
            targets=_next(np.where(all_owners >= 0, all_ids, IGNORED), IGNORED),
            turns=_next(all_owners, -1),
            positions=np.stack(positions, axis=1),
        )

    def _positions(self, groups: int, grid: tuple[int, int], seconds: float, branches: Numbers) -> Numbers:
        """[3, length]: time, height and width of visual tokens, then each branch counted from the same start."""
        start = len(self._prefix)
        times = (np.arange(groups, dtype=np.float32) * np.float32(seconds * TOKENS_PER_SECOND)).astype(np.int64)
        visual = np.stack(np.meshgrid(times, np.arange(grid[0]), np.arange(grid[1]), indexing="ij")).reshape(3, -1)
        text = np.zeros(len(branches) - start - visual.shape[1], np.int64)
        after = branches[start + visual.shape[1] :]
        for branch in np.unique(after):
            mine = after == branch
            text[mine] = start + max(grid) + np.arange(mine.sum())
        first = np.tile(np.arange(start), (3, 1))
        return np.concatenate([first, visual + start, np.tile(text, (3, 1))], axis=1)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _padded(rows: Sequence[Sequence[int]], fill: int) -> Numbers:
    length = max(map(len, rows))
    return np.array([[*row, *[fill] * (length - len(row))] for row in rows])


def _next(values: Numbers, fill: int) -> Numbers:
    """Each place gets the value of the one after it."""
    return np.concatenate([values[:, 1:], np.full((len(values), 1), fill)], axis=1)
