"""No bit of a token's logits, or of a picture's tokens, depends on what else is computed: every family in bfloat16."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
import torch
from checkpoints import find_checkpoint
from every_family import FAMILIES
from model_loop import Loop, make_adapter
from torch import Tensor

from unifiedserve.attention import RaggedBatch
from unifiedserve.memory.recurrent_state import LINEAR_ATTENTION
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.processor import MediaOptions
from unifiedserve.models.registry import load_processor

LENGTHS = [150, 40, 7]
SIZES = [(100, 140), (224, 60), (300, 300), (80, 80)]  # of pictures

Step = list[tuple[int, int, int]]  # of which sequences which tokens [start, stop)

ALONE: list[Step] = [[(i, 0, n)] for i, n in enumerate(LENGTHS)]
TOGETHER: list[Step] = [[(i, 0, n) for i, n in enumerate(LENGTHS)]]
MIXED: list[Step] = [
    [(0, 0, 90), (1, 0, 1)],
    [(0, 90, 91), (1, 1, 40), (2, 0, 3)],
    [(0, 91, 99), (2, 3, 4)],
    [(0, 99, 150), (2, 4, 7)],
]


def logits(adapter: LanguageAdapter, steps: Sequence[Step]) -> list[Tensor]:
    """Each text's [length, vocab]."""
    ids = [torch.randint(5, 90, (n,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
    parts: list[list[Tensor]] = [[] for _ in ids]
    with closing(Loop(adapter)) as loop:
        pages = [[loop.free.pop() for _ in range(loop.kv.pages_for(n))] for n in LENGTHS]
        for step in steps:
            batch = RaggedBatch.build([loop.kv.span(pages[i], *part) for i, *part in step], loop.kv.page_size)
            tokens = torch.cat([ids[i][start:stop] for i, start, stop in step])
            positions = torch.cat([adapter.positions(ids[i].tolist(), [])[:, a:b] for i, a, b in step], dim=1)
            embeds = adapter.embed(tokens, None, torch.zeros(len(tokens), dtype=torch.bool))
            found = adapter.logits(adapter.forward(embeds, positions, batch, loop.kv)).clone()
            for (i, *_), part in zip(step, found.split([stop - start for _, start, stop in step]), strict=True):
                parts[i].append(part)
    return [torch.cat(each) for each in parts]


@pytest.mark.parametrize(
    "name", [name if name == "llava" else pytest.param(name, marks=pytest.mark.long) for name in FAMILIES]
)
def test_rows_are_the_same(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint = find_checkpoint(tmp_path_factory, name)
    adapter = make_adapter(checkpoint, torch.bfloat16)
    if adapter.pooling is None:
        expected = logits(adapter, ALONE)
        # linear attention is summed up from where a chunk begins
        linear = LINEAR_ATTENTION in (getattr(adapter.language_model.config, "layer_types", None) or ())
        for steps in [TOGETHER] if linear else [TOGETHER, MIXED]:
            assert all(map(torch.equal, logits(adapter, steps), expected))
    if "image" in FAMILIES[name].media:
        check_pictures(adapter, checkpoint)


def check_pictures(adapter: LanguageAdapter, checkpoint: Path) -> None:
    ours = load_processor(checkpoint)
    plans = [ours.plan_image(*size, MediaOptions()) for size in SIZES]
    patches = [torch.randint(0, 256, (plan.patches, ours.patch_row_bytes)).to(torch.uint8) for plan in plans]
    alone = [adapter.encode(own, [(plan, plan.units)]) for own, plan in zip(patches, plans, strict=True)]
    together = adapter.encode(torch.cat(patches), [(plan, plan.units) for plan in plans])
    assert torch.equal(together, torch.cat(alone))
