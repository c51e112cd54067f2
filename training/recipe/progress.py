"""The share of right answers so far, by category.

An answer is right if every one of its tokens is the likeliest after the right ones before it, which is the same as
greedy decoding giving exactly this answer.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from training.recipe.batches import Batch
from training.recipe.network import Reading
from training.recipe.prompts import IGNORED


@torch.no_grad()
def shares_right(
    batches: Iterable[Batch], forward: Callable[[Batch], tuple[Tensor, Reading | None]]
) -> dict[str, float]:
    """Return the share of exact answers in each category."""
    results: dict[str, list[bool]] = defaultdict(list)
    for batch in batches:
        _, reading = forward(batch)
        if reading is None:
            continue
        targets, turns = batch.sequences["targets"], batch.sequences["turns"]
        wrong = reading.logits.argmax(1).cpu() != targets[targets != IGNORED]
        failed = set(turns[turns >= 0][wrong].tolist())
        for number, turn in enumerate(batch.turns):
            results[turn.category].append(number not in failed)
    return {category: round(sum(right) / len(right), 3) for category, right in sorted(results.items())}
