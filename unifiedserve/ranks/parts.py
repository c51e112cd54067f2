"""Cut a llama-like text model into ranks' parts; pure."""

import re
from typing import Any, NamedTuple

from unifiedserve.errors import ConfigError

_TENSOR = re.compile(
    r"(?:^|\.)(?:layers\.\d+\.(?:self_attn|mlp)\.(\w+)\.(weight|bias)|(embed_tokens|lm_head)\.weight)$"
)
#: sizes of which parts are whole multiples if that can be: what kernels and groups of codes take at once
_UNITS = (128, 64, 32, 16, 8, 4, 2)
_VOCABULARY_UNIT = 16


class Cut(NamedTuple):
    """Select the range [start, stop) of a dimension of a tensor."""

    dim: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class RankPart:
    """Describe the part of a text model that rank number `rank` of `ranks` has.

    Query heads, inner columns and rows of the vocabulary are divided. So are heads of keys and values; where there are
    fewer than ranks, several ranks have the same one.
    """

    def __init__(self, text: Any, rank: int, ranks: int) -> None:
        """Take a transformers text config. Raises ConfigError, with numbers that do, if its heads cannot be divided."""
        self.rank, self.ranks = rank, ranks
        heads, kv_heads = text.num_attention_heads, kv_heads_of(text, ranks)
        first_kv = rank * text.num_key_value_heads // ranks
        dim = getattr(text, "head_dim", None) or text.hidden_size // heads
        queries = _range(heads // ranks * dim, rank)
        shared = (first_kv * dim, (first_kv + kv_heads) * dim)
        inner = _part(text.intermediate_size, rank, ranks)
        self.tokens = range(*_vocabulary(text.vocab_size, rank, ranks))
        #: how many rows of the vocabulary each rank has
        self.vocabulary = [len(range(*_vocabulary(text.vocab_size, each, ranks))) for each in range(ranks)]
        vocabulary = Cut(0, self.tokens.start, self.tokens.stop)
        self._cuts = {
            "q_proj": Cut(0, *queries),
            "k_proj": Cut(0, *shared),
            "v_proj": Cut(0, *shared),
            "o_proj": Cut(1, *queries),
            "gate_proj": Cut(0, *inner),
            "up_proj": Cut(0, *inner),
            "down_proj": Cut(1, *inner),
            "embed_tokens": vocabulary,
            "lm_head": vocabulary,
        }

    def cut(self, name: str) -> Cut | None:
        """Return what the rank has of the language model's tensor of that name; None: all of it."""
        match = _TENSOR.search(name)
        if match is None:
            return None
        cut = self._cuts.get(match[1] or match[3])
        return None if cut and cut.dim and match[2] == "bias" else cut  # a bias of sums is whole


def kv_heads_of(text: Any, ranks: int) -> int:
    """Return how many heads of keys and values each rank has. Raises ConfigError as `RankPart` does."""
    heads: int = text.num_attention_heads
    kv_heads: int = text.num_key_value_heads
    if not _divides(heads, kv_heads, ranks):
        known = ", ".join(map(str, possible_ranks(heads, kv_heads)))
        raise ConfigError(
            f"--tensor-parallel-size {ranks}: {heads} heads, and {kv_heads} of keys and values, cannot be divided "
            f"among {ranks} ranks; numbers that do are {known}"
        )
    return max(1, kv_heads // ranks)


def possible_ranks(heads: int, kv_heads: int) -> list[int]:
    """Return the numbers of ranks among which heads can be divided."""
    return [ranks for ranks in range(1, heads + 1) if _divides(heads, kv_heads, ranks)]


def _divides(heads: int, kv_heads: int, ranks: int) -> bool:
    return heads % ranks == 0 and (kv_heads % ranks == 0 or ranks % kv_heads == 0)


def _range(size: int, number: int) -> tuple[int, int]:
    return number * size, (number + 1) * size


def _part(size: int, rank: int, ranks: int) -> tuple[int, int]:
    """Divide a size into equal parts of whole units; into nearly equal ones if no unit does that."""
    units = [unit for unit in _UNITS if size % unit == 0 and size // unit >= ranks]
    unit = next((unit for unit in units if size // unit % ranks == 0), units[-1] if units else 1)
    return _bounds(size, unit, rank, ranks)


def _vocabulary(size: int, rank: int, ranks: int) -> tuple[int, int]:
    return _bounds(size, _VOCABULARY_UNIT if size >= _VOCABULARY_UNIT * ranks else 1, rank, ranks)


def _bounds(size: int, unit: int, rank: int, ranks: int) -> tuple[int, int]:
    units = -(-size // unit)
    start, stop = (min(size, units * number // ranks * unit) for number in (rank, rank + 1))
    return start, stop
