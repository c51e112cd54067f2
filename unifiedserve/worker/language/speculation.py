"""Decode speculatively: try out what may follow the next tokens of running sequences."""

from array import array
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from unifiedserve.scheduling.speculation import Acceptance
from unifiedserve.worker.language.prompt_lookup import look_up
from unifiedserve.worker.language.sampler import Key
from unifiedserve.worker.language.sequence import Sequence


@dataclass(slots=True)
class _Text:
    """Hold a sequence's tokens so that they can be searched, and how its drafts fared."""

    tokens: "array[int]" = field(default_factory=lambda: array("i"))
    acceptance: Acceptance = field(default_factory=Acceptance)


class Speculation:
    """Draft tokens of running sequences. Its knowledge of them only makes drafts better: it may be forgotten."""

    def __init__(self, most: int = 0, never: Collection[int] = (), cost: float = 0.05) -> None:
        """Draft up to `most` tokens a step, for one or several sequences. None is in `never`.

        A row more costs that share of a step.
        """
        self._most = most
        self._cost = cost
        self._never = never
        self._texts: dict[Key, _Text] = {}

    def draft(self, sequences: list[Sequence]) -> list[list[int]]:
        """Return what may follow each sequence, in a step of 1 + `most` rows.

        Many sequences leave no room for it. Unused parts of one's share go to those behind it.
        """
        room = 1 + self._most - len(sequences)
        drafts: list[list[int]] = []
        for number, sequence in enumerate(sequences):
            share = -(-room // (len(sequences) - number))
            drafts.append(self._draft(sequence, share) if share > 0 else [])
            room -= len(drafts[-1])
        return drafts

    def learn(self, key: Key, drafted: int, accepted: int) -> None:
        """Learn how many of a sequence's drafted tokens were right."""
        if text := self._texts.get(key):
            text.acceptance = text.acceptance.after(drafted, accepted)

    def forget(self, key: Key) -> None:
        """Drop what is known of a sequence that has ended here."""
        self._texts.pop(key, None)

    def _draft(self, sequence: Sequence, share: int) -> list[int]:
        sampling = sequence.sampling
        if sampling.grammar is not None:  # what it allows is known for the next token only
            return []
        text = self._texts.setdefault(sequence.key, _Text())
        most = min(share, text.acceptance.length(self._cost))
        if sampling.max_tokens is not None:
            most = min(most, sampling.max_tokens - sequence.num_generated - 1)
        text.tokens.extend(sequence.token_ids[len(text.tokens) :])
        draft = look_up(np.frombuffer(text.tokens, np.intc), most)
        return list(takewhile(lambda token: token not in self._never, draft))
