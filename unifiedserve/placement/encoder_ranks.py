"""Say over how many ranks of a worker its vision encoder runs."""

import re
from typing import NamedTuple

from unifiedserve.errors import ConfigError

_TEXT = re.compile(r"dp(?P<data>[1-9]\d?)(xtp(?P<tensor>[1-9]\d?))?|tp(?P<alone>[1-9]\d?)")


class EncoderRanks(NamedTuple):
    """Divide ranks into `data` groups, each of `tensor` ranks.

    Each group encodes some of a batch's units, and its ranks share the heads of these.
    """

    data: int = 1
    tensor: int = 1

    @property
    def total(self) -> int:
        """Return the number of ranks."""
        return self.data * self.tensor


FIRST_ALONE = EncoderRanks()


def read_encoder_ranks(text: str, ranks: int) -> EncoderRanks:
    """Return what `dp2`, `tp2` or `dp2xtp2` says; the first rank alone for nothing.

    Raises ConfigError for other words, and if it is not the worker's number of `ranks`.
    """
    if not text:
        return FIRST_ALONE
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ConfigError(f"--encoder-ranks {text}: expected something like dp2, tp2 or dp2xtp2")
    encoder = EncoderRanks(int(found["data"] or 1), int(found["tensor"] or found["alone"] or 1))
    if encoder.total != ranks:
        raise ConfigError(
            f"--encoder-ranks {text}: that is {encoder.total} ranks, and --tensor-parallel-size is {ranks}: both must "
            "be the same number"
        )
    return encoder
