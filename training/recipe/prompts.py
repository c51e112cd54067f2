"""Several conversations about one clip as one sequence.

The clip's visual tokens come once, the conversations one after another, some to a row of ROW tokens. Each sees the clip
and itself only, and has the positions that it would have alone: for the model each is a prompt of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from training.world.questions import Turn
from unifiedserve.models.checkpoint_files import TOKENS_PER_SECOND

SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
IGNORED = -100
ROW = 96  # tokens; the longest conversations have about 80
MISSES = 3  # conversations in a row that do not fit any more, after which a row is full
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Sequences:
    """[clips, length] token ids, branches (0: the clip's prefix, -1: padding), and what each token should predict.

    `turns` numbers the answers from 0 over the whole batch, -1 elsewhere; `positions` is [3, clips, length].
    For `thing` and `happening` see Branch.
    """

    ids: Numbers
    branches: Numbers
    targets: Numbers
    turns: Numbers
    positions: Numbers
    thing: Numbers
    happening: Numbers


@dataclass(frozen=True)
class Branch:
    """A conversation, and its tokens after the visual ones.

    `owners` are the turns to whose answers they belong. `thing` and `happening` are what they should look at, numbered
    as in Labels: from the last word of a mention, and from where a token of an answer is predicted. -1 is none.
    """

    turns: Sequence[Turn]
    ids: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    thing: list[int] = field(default_factory=list)
    happening: list[int] = field(default_factory=list)

    def add(self, ids: list[int], owner: int = -1) -> None:
        self.ids.extend(ids)
        for numbers, fill in ((self.owners, owner), (self.thing, -1), (self.happening, -1)):
            numbers.extend([fill] * len(ids))

    def look(self, place: int, thing: int | None, happening: int | None) -> None:
        self.thing[place] = -1 if thing is None else thing
        self.happening[place] = -1 if happening is None else happening


class Writer:
    """A writer of conversations as token ids, as the checkpoint's template does."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, Encoding] = {}
        self._prefix = self._ids(SYSTEM)
        vocabulary = tokenizer.get_vocab()
        self._pads = {kind: vocabulary[f"<|{kind}_pad|>"] for kind in ("image", "video")}
        self._nothing = vocabulary["<|endoftext|>"]

    def prefix(self, kind: str, groups: int, grid: tuple[int, int]) -> list[int]:
        return [*self._prefix, *[self._pads[kind]] * (groups * grid[0] * grid[1])]

    def branch(self, turns: Sequence[Turn]) -> Branch:
        """Write a conversation of so many turns."""
        branch = Branch(turns)
        branch.add(self._ids("<|vision_end|>"))
        for number, turn in enumerate(turns):
            opening, start = "" if number == 0 else "\n<|im_start|>user\n", len(branch.ids)
            asked = f"{opening}{turn.question}<|im_end|>\n<|im_start|>assistant\n"
            branch.add(self._ids(asked))
            for mention in turn.mentions:
                branch.look(start + self._last_token(asked, mention.words), mention.thing, mention.event)
            first = len(branch.ids)
            branch.add(self._ids(f"{turn.answer}<|im_end|>"), number)
            for place in range(first - 1, len(branch.ids) - 1):
                branch.look(place, turn.about, turn.event)
        return branch

    def row(self, talk: Callable[[], Sequence[Turn]]) -> list[Branch]:
        """Take as many conversations as fit into a row."""
        branches, free, misses = [], ROW, 0
        while misses < MISSES:
            branch = self.branch(talk())
            if len(branch.ids) <= free:
                branches.append(branch)
                free -= len(branch.ids)
            else:
                misses += 1
        return branches

    def sequences(
        self,
        kind: str,
        groups: int,
        grid: tuple[int, int],
        seconds: Sequence[float],
        conversations: Sequence[Sequence[Sequence[Branch]]],
    ) -> Sequences:
        """Join clips of the same size, `seconds` between their groups, with the conversations in each of their rows."""
        prefix = self.prefix(kind, groups, grid)
        length = len(prefix) + ROW * len(conversations[0])
        all_ids = np.full((len(conversations), length), self._nothing)
        all_branches, all_owners, things, happenings = (np.full_like(all_ids, -1) for _ in range(4))
        all_ids[:, : len(prefix)], all_branches[:, : len(prefix)] = prefix, 0
        asked = 0
        for clip, rows in enumerate(conversations):
            numbers = count(1)
            for row, branches in enumerate(rows):
                place = len(prefix) + ROW * row
                for branch in branches:
                    own = (clip, slice(place, place + len(branch.ids)))
                    all_ids[own], all_branches[own] = branch.ids, next(numbers)
                    all_owners[own] = [asked + owner if owner >= 0 else -1 for owner in branch.owners]
                    things[own], happenings[own] = branch.thing, branch.happening
                    place += len(branch.ids)
                    asked += len(branch.turns)
        positions = [
            self._positions(groups, grid, interval, own) for interval, own in zip(seconds, all_branches, strict=True)
        ]
        return Sequences(
            ids=all_ids,
            branches=all_branches,
            targets=_next(np.where(all_owners >= 0, all_ids, IGNORED), IGNORED),
            turns=_next(all_owners, -1),
            positions=np.stack(positions, axis=1),
            thing=things,
            happening=happenings,
        )

    def _positions(self, groups: int, grid: tuple[int, int], seconds: float, branches: Numbers) -> Numbers:
        """Return positions [3, length]: time, height, width of visual tokens, then each branch from the same start."""
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
        return self._encoding(text).ids

    def _last_token(self, text: str, words: str) -> int:
        """Return the number of the token in which the words, in any case of letters, end in the text."""
        end = text.lower().index(words.lower()) + len(words)
        return max(i for i, (first, _) in enumerate(self._encoding(text).offsets) if first < end)

    def _encoding(self, text: str) -> Encoding:
        """Encode a text; the same sentences come again and again."""
        if text not in self._known:
            self._known[text] = self._tokenizer.encode(text, add_special_tokens=False)
        return self._known[text]


def _next(values: Numbers, fill: int) -> Numbers:
    """Give each place the value of the one after it."""
    return np.concatenate([values[:, 1:], np.full((len(values), 1), fill)], axis=1)
