"""Follow rank 0: the other ranks do what it tells, on their parts."""

from collections.abc import Sequence
from typing import Protocol

import torch

from unifiedserve.attention import PagedKV
from unifiedserve.ranks.decoder import FollowingDecoder
from unifiedserve.ranks.encoder import PartOfEncoder
from unifiedserve.ranks.messages import (
    CopyPages,
    Drop,
    Embed,
    Encode,
    Encoded,
    Forget,
    GiveWay,
    Launch,
    Layer,
    Leave,
    Logits,
    Message,
    Prepare,
    Step,
    token_ids,
)
from unifiedserve.ranks.model import PartOfModel


class RankKV(PagedKV, Protocol):
    """View a rank's part of the KV cache."""

    def copy_pages(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy all that is in some pages to others."""


@torch.inference_mode()
def follow(
    part: PartOfModel, kv: RankKV, encoder: PartOfEncoder | None = None, decoder: FollowingDecoder | None = None
) -> None:
    """Take part in what rank 0 tells, until it says that it ends. Raises CollectiveError if it does not come."""
    while True:
        match part.group.hear():
            case Leave():
                return
            case Embed() as message:
                part.embed(part.device.upload(token_ids(message)))
            case Step() as message:
                positions, batch = message.batch()
                part.step(part.empty(positions.shape[1], message.width), positions, batch, kv)
            case GiveWay(giving):
                part.give_way(giving)
            case Logits(rows):
                part.logits(part.empty(rows, part.hidden))
            case CopyPages(sources, targets):
                kv.copy_pages(sources, targets)
            case Launch() | Forget() | Prepare() as message:
                assert decoder is not None  # else nobody tells of it
                decoder.take_part(message)
            case message:
                assert encoder is not None  # as above
                _encode(encoder, message)


def _encode(encoder: PartOfEncoder, message: Message) -> None:
    match message:
        case Encode(number, rows, row_bytes, units):
            encoder.follow(number, rows, row_bytes, units)
        case Layer(number):
            encoder.layer(number)
        case Encoded(number, width):
            encoder.finish(number, width)
        case Drop(number):
            encoder.drop(number)
