"""Cut a llama-like text model and a vision tower into ranks' parts; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from unifiedserve.errors import ConfigError
from unifiedserve.placement.encoder_ranks import FIRST_ALONE, EncoderRanks

if TYPE_CHECKING:
    from torch import Tensor

_TENSOR = re.compile(
    r"(?:^|\.)(?:layers\.\d+\.(?:self_attn|mlp)\.(\w+)\.(weight|bias)|(embed_tokens|lm_head)\.weight)$"
)
#: sizes of which parts are whole multiples if that can be: what kernels and groups of codes take at once
_UNITS = (128, 64, 32, 16, 8, 4, 2)
_VOCABULARY_UNIT = 16
_TOWER_TENSOR = re.compile(r"(?:^|\.)blocks\.\d+\.(?:attn|mlp)\.(\w+)\.(weight|bias)$")
_TOWER_QKV = "qkv"
_TOWER_INNER = ("gate_proj", "up_proj", "fc1", "linear_fc1")
_TOWER_SUMMED = ("down_proj", "fc2", "linear_fc2")


class Cut(NamedTuple):
    """Select the range [start, stop) of a tensor's dimension, or of each of its equal `blocks`."""

    dim: int
    start: int
    stop: int
    blocks: int = 1

    @property
    def size(self) -> int:
        return (self.stop - self.start) * self.blocks

    def widened(self, unit: int, size: int) -> Cut:
        """Return the whole units around it, of a dimension of this size."""
        return self._replace(start=self.start // unit * unit, stop=min(size, -(-self.stop // unit) * unit))

    def within(self, wider: Cut) -> Cut:
        """Return the same part, of what a wider one selects."""
        return self._replace(start=self.start - wider.start, stop=self.stop - wider.start)

    def of(self, tensor: Tensor) -> Tensor:
        """Return that part: a view, but of several blocks, which are joined."""
        if self.blocks == 1:
            return tensor.narrow(self.dim, self.start, self.size)
        split = tensor.reshape(*tensor.shape[: self.dim], self.blocks, -1, *tensor.shape[self.dim + 1 :])
        return split.narrow(self.dim + 1, self.start, self.stop - self.start).flatten(self.dim, self.dim + 1)


class RankPart:
    """Describe the part of a text model that rank number `rank` of `ranks` has.

    Query heads, inner columns and rows of the vocabulary are divided. So are heads of keys and values; where there are
    fewer than ranks, several ranks have the same one.
    """

    def __init__(
        self,
        text: Any,
        rank: int,
        ranks: int,
        encoder: EncoderRanks = FIRST_ALONE,
        vision: Any = None,
        *,
        apart: bool = False,
    ) -> None:
        """Take transformers' configs of text and of a vision tower that `encoder` ranks share.

        `apart`: each rank has a memory of its own. Raises ConfigError, with numbers that do, if heads cannot be
        divided.
        """
        self.rank, self.ranks = rank, ranks
        self.encoder = EncoderPart(vision, rank, encoder, apart=apart)
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


class EncoderPart:
    """Divide the blocks of a vision encoder: a rank has some heads and inner columns of each.

    Ranks that encode other units with the same heads have the same part, which is stored once in a memory.
    """

    def __init__(self, vision: Any, rank: int, ranks: EncoderRanks, *, apart: bool = False) -> None:
        """Take a Qwen tower's config, if its blocks are divided. Raises ConfigError if its heads cannot be."""
        self.ranks = ranks
        number = rank % ranks.tensor
        #: whether this rank adds what is not divided: biases of sums, and what these are added to
        self.leads = number == 0
        #: whether the part is stored with this rank's weights
        self.stored = rank < (ranks.total if apart else ranks.tensor)
        self._cuts = _tower_cuts(vision, number, ranks.tensor) if ranks.tensor > 1 else {}

    def cut(self, name: str) -> Cut | None:
        """Return what the rank has of the encoder's tensor of that name; None: all of it."""
        match = _TOWER_TENSOR.search(name)
        if match is None or (match[2] == "bias" and self.sums(name)):
            return None
        return self._cuts.get(match[1])

    def sums(self, name: str) -> bool:
        """Tell whether a tensor belongs to a product that is summed over ranks."""
        match = _TOWER_TENSOR.search(name)
        cut = self._cuts.get(match[1]) if match else None
        return cut is not None and cut.dim == 1


def _tower_cuts(vision: Any, number: int, ranks: int) -> dict[str, Cut]:
    if (heads := vision.num_heads) % ranks:
        known = ", ".join(str(each) for each in range(1, heads + 1) if heads % each == 0)
        raise ConfigError(
            f"--encoder-ranks tp{ranks}: {heads} heads of the vision encoder cannot be divided among {ranks} ranks; "
            f"numbers that do are {known}"
        )
    hidden = getattr(vision, "embed_dim", None) or vision.hidden_size
    inner = _part(getattr(vision, "intermediate_size", None) or int(hidden * vision.mlp_ratio), number, ranks)
    own = _range(hidden // ranks, number)
    cuts = {_TOWER_QKV: Cut(0, *own, blocks=3), "proj": Cut(1, *own)}
    return cuts | {name: Cut(0, *inner) for name in _TOWER_INNER} | {name: Cut(1, *inner) for name in _TOWER_SUMMED}


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


def parts_of(config: Any, ranks: int, encoder: EncoderRanks, *, apart: bool = False) -> list[RankPart]:
    """Return the part of each rank of a model with this transformers config. Raises ConfigError as `RankPart` does."""
    text, vision = config.get_text_config(), getattr(config, "vision_config", None)
    return [RankPart(text, rank, ranks, encoder, vision, apart=apart) for rank in range(ranks)]
