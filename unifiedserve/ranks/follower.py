"""Follow rank 0: the other ranks do what it tells, on their parts."""

import torch

from unifiedserve.attention import PagedKV
from unifiedserve.ranks.messages import Embed, GiveWay, Leave, Logits, Step, token_ids
from unifiedserve.ranks.model import PartOfModel


@torch.inference_mode()
def follow(part: PartOfModel, kv: PagedKV) -> None:
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
