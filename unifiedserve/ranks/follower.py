"""Follow rank 0: the other ranks do what it tells, on their parts."""

import torch

from unifiedserve.attention import PagedKV
from unifiedserve.ranks.encoder import PartOfEncoder
from unifiedserve.ranks.messages import (
    Drop,
    Embed,
    Encode,
    Encoded,
    GiveWay,
    Layer,
    Leave,
    Logits,
    Message,
    Step,
    token_ids,
)
from unifiedserve.ranks.model import PartOfModel


@torch.inference_mode()
def follow(part: PartOfModel, kv: PagedKV, encoder: PartOfEncoder | None = None) -> None:
    """Take part in what rank 0 tells, until it says that it ends. Raises CollectiveError if it does not come."""
    while True:
        match part.group.hear():
            case Leave():
                return
            case Embed() as message:
                part.embed(token_ids(message))
            case Step() as message:
                positions, batch = message.batch()
                embeds = torch.empty(positions.shape[1], message.width, dtype=part.dtype)
                part.step(embeds, positions, batch, kv)
            case GiveWay(giving):
                part.give_way(giving)
            case Logits(rows):
                part.logits(torch.empty(rows, part.hidden, dtype=part.dtype))
            case message:
                assert encoder is not None  # else nobody tells of it
                _encode(encoder, message)


def _encode(encoder: PartOfEncoder, message: Message) -> None:
    match message:
        case Encode(number, rows, row_bytes, units):
            encoder.begin(number, torch.empty(rows, row_bytes, dtype=torch.uint8), units)
        case Layer(number):
            encoder.layer(number)
        case Encoded(number, width):
            encoder.finish(number, width)
        case Drop(number):
            encoder.drop(number)
