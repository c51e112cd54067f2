"""EPD's Tables 2 to 4: what fits into a GPU when encoding and prefill share it, and when each has its own.

Two numbers of each model are fitted, each to one cell: the memory that a tile takes while it is encoded (EPD's batches
of the encoder, Table 3), and the one that a prompt token takes while it is prefilled (EPD's caches, Table 4). All other
cells follow: memory that the weights leave, a part of it for the cache, the rest for activations.
"""

from collections.abc import Iterator
from typing import NamedTuple

from simulated.figure import Claim, Figure

_GPU = 79.0  # GiB that a process can have of 80
_CACHE = 0.8  # of what weights leave (§5.3)
_TEXT = 22  # tokens of a question (§5)
_IMAGES = 10  # of a request, in Table 3
RESOLUTIONS = ("313x234", "787x444", "4032x3024")

Cell = float | str


class Model(NamedTuple):
    """A model: tiles by resolution, visual tokens of a tile, GiB of weights and of what tiles and 1,000 tokens take."""

    name: str
    tiles: tuple[int, int, int]
    tile_tokens: int
    encoder: float
    language: float
    tile: float
    thousand: float
    context: int

    def tokens(self, images: int, tiles: int) -> int:
        """Return the tokens of a prompt."""
        return images * tiles * self.tile_tokens + _TEXT

    @property
    def together(self) -> float:
        """Return what the weights leave of a GPU with both models."""
        return _GPU - self.encoder - self.language

    @property
    def alone(self) -> float:
        """Return what they leave of a GPU with the language model."""
        return _GPU - self.language

    def takes(self, tiles: float, tokens: float) -> float:
        """Return the GiB of encoding tiles, and then prefilling tokens, in one pass."""
        return tiles * self.tile + tokens / 1000 * self.thousand


MODELS = (
    Model("MiniCPMv 2.6", (1, 3, 10), 64, 0.8, 14.2, 0.159, 0.2, 49152),
    Model("InternVL2-8B", (13, 3, 13), 256, 0.6, 14.4, 0.039, 0.176, 65536),
    Model("InternVL2-26B", (13, 3, 13), 256, 11.1, 37.0, 0.087, 0.25, 131072),
)

#: the paper's cells: Table 2 (DistServe, EPD), Table 3 (DistServe, E, P), Table 4 (images: DistServe, EPD)
TABLE_2 = {
    "MiniCPMv 2.6": ((77, 490), (26, 165), (7, 49)),
    "InternVL2-8B": ((19, 19), (19, 19), (19, 19)),
    "InternVL2-26B": ((1, 10), (11, 45), (1, 10)),
}
TABLE_3: dict[str, tuple[tuple[Cell, Cell, Cell], ...]] = {
    "MiniCPMv 2.6": ((7, 49, 86), (2, 16, 29), ("OOM", 4, 9)),
    "InternVL2-8B": ((2, 15, 2), (9, 67, 10), (2, 15, 2)),
    "InternVL2-26B": (("OOM", 6, 1), (1, 22, 4), ("OOM", 6, 1)),
}
TABLE_4: dict[str, dict[int, tuple[Cell, Cell]]] = {
    "MiniCPMv 2.6": {5: (86, 99), 10: (74, 97), 20: (49, 95), 40: ("OOM", 92), 80: ("OOM", "OOCL")},
    "InternVL2-8B": {5: (94, 95), 10: (89, 91), 20: ("OOCL", "OOCL")},
    "InternVL2-26B": {5: (67, 89), 10: (36, 80), 20: ("OOM", 63), 40: ("OOM", "OOCL")},
}


def most_images(model: Model, tiles: int) -> tuple[int, int]:
    """Return how many images a request can have, with both stages on a GPU and apart."""
    limit = (model.context - _TEXT) // (tiles * model.tile_tokens)
    image = tiles * model.tile_tokens
    together = int((1 - _CACHE) * model.together / model.takes(tiles, image))
    encode = int((_GPU - model.encoder) / model.takes(tiles, 0))
    prefill = int((1 - _CACHE) * model.alone / model.takes(0, image))
    return min(limit, together), min(limit, encode, prefill)


def largest_batches(model: Model, tiles: int) -> tuple[Cell, Cell, Cell]:
    """Return the largest batches of requests: with both stages on a GPU, of the encoder alone, of prefill alone."""
    count, tokens = _IMAGES * tiles, model.tokens(_IMAGES, tiles)
    together = int((1 - _CACHE) * model.together / model.takes(count, tokens))
    encode = int((_GPU - model.encoder) / model.takes(count, 0))
    prefill = int((1 - _CACHE) * model.alone / model.takes(0, tokens))
    return together or "OOM", encode or "OOM", prefill or "OOM"


def largest_cache(model: Model, images: int) -> tuple[Cell, Cell]:
    """Return the largest caches (percent of what weights leave) beside a request of so many large images."""
    tiles = images * model.tiles[-1]
    tokens = model.tokens(images, model.tiles[-1])
    together, alone = 1 - model.takes(tiles, tokens) / model.together, 1 - model.takes(0, tokens) / model.alone
    beyond = tokens > model.context
    return "OOM" if together < 0 else "OOCL" if beyond else 100 * together, "OOCL" if beyond else 100 * alone


def _claims_2() -> Iterator[Claim]:
    for model in MODELS:
        for resolution, tiles, paper in zip(RESOLUTIONS, model.tiles, TABLE_2[model.name], strict=True):
            for system, ours, theirs in zip(("DistServe", "EPD"), most_images(model, tiles), paper, strict=True):
                yield Claim(f"{model.name}, {resolution}, {system}", float(ours), float(theirs))


def _claims_3() -> Iterator[Claim]:
    for model in MODELS:
        for resolution, tiles, paper in zip(RESOLUTIONS, model.tiles, TABLE_3[model.name], strict=True):
            for stage, ours, theirs in zip(("DistServe", "E", "P"), largest_batches(model, tiles), paper, strict=True):
                yield Claim(f"{model.name}, {resolution}, {stage}", _number(ours), _number(theirs))


def _claims_4() -> Iterator[Claim]:
    for model in MODELS:
        for images, paper in TABLE_4[model.name].items():
            for system, ours, theirs in zip(("DistServe", "EPD"), largest_cache(model, images), paper, strict=True):
                yield Claim(f"{model.name}, {images} images, {system}, %", _number(ours), _number(theirs))


def _number(cell: Cell) -> Cell:
    return cell if isinstance(cell, str) else float(cell)


def table_2() -> Figure:
    """Return the most images of a request."""
    return Figure(
        name="epd-table-2",
        paper="EPD Table 2",
        shows="images of a request",
        claims=list(_claims_2()),
        note="InternVL2-8B's 19 images of 787x444 are no limit that the text explains: the context has room for 85. "
        "Two numbers a model are fitted to other tables; with 1 and 3 images rounding is a large part.",
    )


def table_3() -> Figure:
    """Return the largest batches."""
    return Figure(
        name="epd-table-3",
        paper="EPD Table 3",
        shows="largest batches of requests with ten images",
        claims=list(_claims_3()),
        note="The column E is fitted by one cell for each model. DistServe's batches of InternVL2-8B are larger than "
        "here: what its small encoder took seems to be given back before prefill.",
    )


def table_4() -> Figure:
    """Return the largest caches."""
    return Figure(
        name="epd-table-4",
        paper="EPD Table 4",
        shows="largest KV caches beside large images",
        claims=list(_claims_4()),
        note="The column EPD is fitted by one cell for each model; DistServe's is what follows when both stages share "
        "a GPU.",
    )


FIGURES = {"epd-table-2": table_2, "epd-table-3": table_3, "epd-table-4": table_4}
