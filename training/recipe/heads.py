"""Dense targets: what each visual token should know, where in the network, and readings that are thrown away later."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.recipe.labels import (
    ALIKE_CLASSES,
    COLOUR_CLASSES,
    EVENT_CLASSES,
    HAPPENING_CLASSES,
    HEADING_CLASSES,
    MINUTE_CLASSES,
    NOTHING,
    SHAPE_CLASSES,
    TEN_CLASSES,
    TIME_CLASSES,
)

PLACED = 1  # the language layer after which visual tokens should know where in the picture they are,
REMEMBERED = 2  # the layer after which they should know what was there in the group before,
KNOWN = 3  # the layer after which they should know what happened, when, and which way things go
POINTING = 4  # the layer in which some heads look at the thing or event that a word is about; two share their values
POINTERS = {0: "thing", 1: "happening", 3: "thing", 4: "happening"}
MOTION = 4.0  # cells a group: what a fast thing moves
SEEN_SIZES = [SHAPE_CLASSES, COLOUR_CLASSES, 2, 3, 2, 2]  # size, in which frames, within the cell, motion
NAMED = {
    "heading": (HEADING_CLASSES, 1.0),
    "time": (TIME_CLASSES, 0.5),
    "minute": (MINUTE_CLASSES, 0.5),
    "ten": (TEN_CLASSES, 0.5),
    "same_shape": (ALIKE_CLASSES, 0.5),
    "same_colour": (ALIKE_CLASSES, 0.5),
    "happening": (HAPPENING_CLASSES, 0.5),
    "hit_shape": (SHAPE_CLASSES, 0.5),
    "hit_colour": (COLOUR_CLASSES, 0.5),
}  # classes and weights of what is known, beside events and places
# of these, what a token that looks at an event should have from it
TOLD = ("time", "minute", "ten", "happening", "hit_shape", "hit_colour")


class Heads(nn.Module):
    """Linear readings of visual tokens; for the classes and values see Labels."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.seen = nn.Linear(hidden, sum(SEEN_SIZES))
        self.placed = nn.Linear(hidden, 2)
        self.remembered = nn.Linear(hidden, 2 * (COLOUR_CLASSES + 1))
        self.known = nn.Linear(hidden, EVENT_CLASSES + 2)
        self.named = nn.ModuleDict({name: nn.Linear(hidden, classes) for name, (classes, _) in NAMED.items()})


def seen_loss(heads: Heads, visual: Tensor, labels: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
    """Return the loss of what single groups show, and the shares of cells whose things' shape and colour are right."""
    shape, colour, big, frames, within, motion = heads.seen(visual.float().flatten(0, 2)).split(SEEN_SIZES, dim=1)
    flat = {name: value.flatten(0, 2) if value.dim() == 4 else value.flatten() for name, value in labels.items()}
    there = flat["shape"] > 0
    loss = _rare(shape, flat["shape"], 3.0)
    for logits, name, weight in ((colour, "colour", 1.0), (big, "big", 0.5), (frames, "frames", 0.5)):
        loss = loss + weight * _named(logits, flat[name])
    loss = loss + 2 * functional.mse_loss(within[there], flat["within"][there])
    moved = flat["motion"][there].clamp(-MOTION, MOTION)
    loss = loss + functional.smooth_l1_loss(2 * motion[there], 2 * moved)
    right = {
        "cell shape": float((shape.argmax(1) == flat["shape"])[there].float().mean()),
        "cell colour": float((colour.argmax(1) == flat["colour"])[there].float().mean()),
    }
    return loss, right


def understood_loss(heads: Heads, inner: dict[int, Tensor], labels: dict[str, Tensor], kind: str) -> Tensor:
    """Return the loss of what visual tokens [clips, tokens, hidden] know after some layers of the language model."""
    there = labels["shape"].flatten() > 0
    place = labels["place"].flatten(0, 2)[there]
    loss = 8 * functional.mse_loss(heads.placed(_flat(inner[PLACED]))[there], place)
    known = _flat(inner[KNOWN])
    event, again = heads.known(known).split([EVENT_CLASSES, 2], dim=1)
    loss = loss + 4 * functional.mse_loss(again[there], place) + _rare(event, labels["event"], 5.0)
    if kind == "video":
        was, before = heads.remembered(_flat(inner[REMEMBERED])).chunk(2, dim=1)
        loss = loss + _rare(was, labels["was"], 3.0) + _named(before, labels["before"])
    for name in NAMED if kind == "video" else ("same_shape", "same_colour"):
        loss = loss + NAMED[name][1] * _named(heads.named[name](known), labels[name])
    return loss


def pointing_loss(pointed: Tensor, wanted: dict[str, Tensor], labels: dict[str, Tensor]) -> Tensor:
    """Return how far the POINTERS look elsewhere; for `pointed` and `wanted` see Reading."""
    loss = pointed.new_zeros((), dtype=torch.float32)
    for head, name in POINTERS.items():
        row, place, _, there = _sought(wanted, labels, name)
        looks = (pointed[row, head, place].float() * there).sum(1)
        if len(looks):
            loss = loss - (looks + 1e-4).log().mean()
    return loss


def told_loss(heads: Heads, text: Tensor, wanted: dict[str, Tensor], labels: dict[str, Tensor]) -> Tensor:
    """Return the loss of what tokens that look at an event know of it; for `text` and `wanted` see Reading."""
    row, place, clip, there = _sought(wanted, labels, "happening")
    cell, known = there.int().argmax(1), text[row, place].float()
    losses = [NAMED[name][1] * _named(heads.named[name](known), labels[name].flatten(1)[clip, cell]) for name in TOLD]
    return torch.stack(losses).sum()


def _sought(wanted: dict[str, Tensor], labels: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return rows, places and clips of tokens that should look at something, and where it is [n, visual tokens]."""
    row, place = (wanted[name] != NOTHING).nonzero(as_tuple=True)
    clip = row // (len(wanted[name]) // len(labels[name]))
    there = labels[name].flatten(1)[clip] == wanted[name][row, place][:, None]
    found = there.any(1)
    return row[found], place[found], clip[found], there[found]


def _flat(tokens: Tensor) -> Tensor:
    return tokens.float().flatten(0, 1)


def _rare(logits: Tensor, labels: Tensor, weight: float) -> Tensor:
    """Return the cross entropy of classes of which 0 is by far the most frequent."""
    weights = torch.full((logits.shape[1],), weight, device=logits.device)
    weights[0] = 1.0
    return functional.cross_entropy(logits, labels.flatten(), weight=weights)


def _named(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy where there is a label."""
    known = labels.flatten() != NOTHING
    return functional.cross_entropy(logits[known], labels.flatten()[known]) if known.any() else logits.sum() * 0.0
