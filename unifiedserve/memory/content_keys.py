"""Key contents by 16-byte BLAKE2b digests. They digest all that a page's K and V, or a unit's visual tokens, depend on.

The key of a KV page chains over the pages before it, for keys and values depend on all earlier tokens.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate

import numpy as np

KEY_BYTES = 16
ROOT_KEY = bytes(KEY_BYTES)  # key of the page before the first


def page_key(previous: bytes, token_ids: Sequence[int], media: Sequence[bytes] = ()) -> bytes:
    """Return the key of a full page behind the page of key `previous`; `media` are the keys of media in it."""
    digest = blake2b(previous, digest_size=KEY_BYTES)
    digest.update(np.asarray(token_ids, np.uint32).tobytes())
    for key in media:
        digest.update(key)
    return digest.digest()


class MediaTokens:
    """Pair the visual tokens of a prompt with the media that they stand for.

    `positions` are those of all visual tokens, ascending; `media` are the key and the number of visual tokens of each
    medium, in the prompt's order.
    """

    def __init__(self, positions: Sequence[int], media: Sequence[tuple[bytes, int]]) -> None:
        self._positions = positions
        self._keys = [key for key, _ in media]
        self._ends = list(accumulate(tokens for _, tokens in media))

    @property
    def keys(self) -> list[bytes]:
        """Return the keys of the media."""
        return self._keys

    def within(self, start: int, stop: int) -> list[bytes]:
        """Return the keys of the media that have tokens in [start, stop) of the prompt."""
        first, last = bisect_left(self._positions, start), bisect_left(self._positions, stop)
        if first == last:
            return []
        return self._keys[bisect_right(self._ends, first) : bisect_left(self._ends, last) + 1]


def page_keys(
    token_ids: Sequence[int], page_tokens: int, media: MediaTokens, known: Sequence[bytes] = ()
) -> list[bytes]:
    """Return the keys of a sequence's full pages, the first of which are `known`.

    Where a token stands for a part of a medium, the medium tells which.
    """
    keys = list(known)
    for start in range(len(keys) * page_tokens, len(token_ids) - page_tokens + 1, page_tokens):
        stop = start + page_tokens
        keys.append(page_key(keys[-1] if keys else ROOT_KEY, token_ids[start:stop], media.within(start, stop)))
    return keys


def medium_key(content: bytes, spec: bytes) -> bytes:
    """Return the key of a medium, from its bytes' digest and the pixels seen.

    All that decides which pixels are seen counts.
    """
    return blake2b(spec, key=content, digest_size=KEY_BYTES).digest()


def unit_key(medium: bytes, unit: int) -> bytes:
    """Return the key of encode unit `unit`'s visual tokens. It is counted from 0 in its medium."""
    return medium + unit.to_bytes(4, "little")
