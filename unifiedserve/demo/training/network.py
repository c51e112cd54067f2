"""The model's forward pass in training: transformers' modules, run over clips of one size at once.

The same function as transformers' own, which runs vision attention one group of frames after another.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from unifiedserve.demo.training.batches import Batch
from unifiedserve.demo.training.labels import (
    COLOUR_CLASSES,
    EVENT_CLASSES,
    NOTHING,
    SHAPE_CLASSES,
    TIME_CLASSES,
)
from unifiedserve.models.families.qwen2_5_vl.rules import CLIP_MEAN, CLIP_STD, MediaRules

INNER = 3  # the language layer after which visual tokens should know what happened where and when
MERGE = 2
MOTION = 4.0  # cells a group: what a fast thing moves


class Heads(nn.Module):
    """Linear readings of visual tokens, for the labels; thrown away after training."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.seen = nn.Linear(hidden, SHAPE_CLASSES + COLOUR_CLASSES + 2 + 3 + 2 + 2)
        self.understood = nn.Linear(hidden, EVENT_CLASSES + TIME_CLASSES + 2)


def encode(model: Any, rows: Tensor, groups: int, grid: tuple[int, int]) -> Tensor:
    """Visual tokens [groups, cells, hidden] of uint8 rows of so many groups of rows x columns tokens."""
    visual = model.model.visual
    heads, size = visual.config.num_heads, visual.config.hidden_size
    mean, deviation = MediaRules(0, 0, image_mean=CLIP_MEAN, image_std=CLIP_STD).normalisation()
    weight = visual.patch_embed.proj.weight.flatten(1)
    pixels = (rows.float() - mean.to(rows.device)) / deviation.to(rows.device)
    hidden = functional.linear(pixels, weight).float().view(groups, -1, size)
    angles = visual.rotary_pos_emb(hidden, patch_positions(grid).to(rows.device))
    for block in visual.blocks:
        hidden = hidden + _attend(block.attn, _norm(block.norm1, hidden), heads, angles)
        hidden = hidden + block.mlp(_norm(block.norm2, hidden))
    merged = _norm(visual.merger.ln_q, hidden).view(groups, -1, MERGE * MERGE * size)
    tokens: Tensor = visual.merger.mlp(merged)
    return tokens


def patch_positions(grid: tuple[int, int]) -> Tensor:
    """[patches, 2]: row and column of each patch, in the order of the rows."""
    rows, columns = grid
    places = torch.stack(torch.meshgrid(torch.arange(MERGE * rows), torch.arange(MERGE * columns), indexing="ij"))
    return places.view(2, rows, MERGE, columns, MERGE).permute(1, 3, 2, 4, 0).flatten(0, 3)


def _attend(attention: Any, x: Tensor, heads: int, angles: tuple[Tensor, Tensor]) -> Tensor:
    groups, patches, size = x.shape
    q, k, v = attention.qkv(x).view(groups, patches, 3, heads, size // heads).permute(2, 0, 3, 1, 4)
    cosine, sine = (part.to(q.dtype) for part in angles)
    # On CPUs the backward pass of torch's fused attention is several times slower for so short sequences.
    scores = _turned(q, cosine, sine) @ _turned(k * (size // heads) ** -0.5, cosine, sine).transpose(2, 3)
    mixed = scores.softmax(-1, dtype=torch.float32).to(v.dtype) @ v
    projected: Tensor = attention.proj(mixed.transpose(1, 2).reshape(groups, patches, size))
    return projected


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def _norm(module: Any, x: Tensor) -> Tensor:
    return functional.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon)


def read(model: Any, batch: Batch, visual: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [answer tokens, vocabulary], and hidden states [clips, visual tokens, hidden] after layer INNER."""
    sequences = batch.sequences
    language = model.model.language_model
    embeds = language.embed_tokens(sequences["ids"])
    count = batch.groups * batch.grid[0] * batch.grid[1]
    start = int((sequences["ids"][0] == visual_id(model, batch.kind)).nonzero()[0])
    own = visual.reshape(batch.clips, count, -1).to(embeds.dtype)
    embeds = torch.cat([embeds[:, :start], own, embeds[:, start + count :]], dim=1)
    output = language(
        inputs_embeds=embeds,
        attention_mask=sight(sequences["branches"])[:, None],
        position_ids=sequences["positions"],
        use_cache=False,
        output_hidden_states=True,
    )
    answered = output.last_hidden_state[sequences["turns"] >= 0]
    return model.lm_head(answered), output.hidden_states[INNER][:, start : start + count]


def visual_id(model: Any, kind: str) -> int:
    number: int = model.config.image_token_id if kind == "image" else model.config.video_token_id
    return number


def sight(branches: Tensor) -> Tensor:
    """bool [clips, length, length]: a token sees what comes before it in its own branch and in the prefix."""
    length = branches.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=branches.device).tril()
    same = branches[:, :, None] == branches[:, None, :]
    return (same | (branches == 0)[:, None, :]) & before


def seen_loss(heads: Heads, visual: Tensor, labels: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
    """Loss of what single groups show, and the shares of cells with things whose shape and colour are right."""
    sizes = [SHAPE_CLASSES, COLOUR_CLASSES, 2, 3, 2, 2]
    shape, colour, big, frames, within, motion = heads.seen(visual.float().flatten(0, 2)).split(sizes, dim=1)
    flat = {name: value.flatten(0, 2) if value.dim() == 4 else value.flatten() for name, value in labels.items()}
    there = flat["shape"] > 0
    weights = torch.ones(SHAPE_CLASSES, device=shape.device)
    weights[1:] = 3.0  # most cells are empty
    loss = functional.cross_entropy(shape, flat["shape"], weight=weights)
    for logits, name, weight in ((colour, "colour", 1.0), (big, "big", 0.5), (frames, "frames", 0.5)):
        loss = loss + weight * functional.cross_entropy(logits, flat[name], ignore_index=NOTHING)
    loss = loss + 2 * functional.mse_loss(within[there], flat["within"][there])
    moved = flat["motion"][there].clamp(-MOTION, MOTION)
    loss = loss + functional.smooth_l1_loss(2 * motion[there], 2 * moved)
    right = {
        "cell shape": float((shape.argmax(1) == flat["shape"])[there].float().mean()),
        "cell colour": float((colour.argmax(1) == flat["colour"])[there].float().mean()),
    }
    return loss, right


def understood_loss(heads: Heads, hidden: Tensor, labels: dict[str, Tensor], kind: str) -> Tensor:
    """Loss of what visual tokens know in the middle of the language model: events, times and places."""
    sizes = [EVENT_CLASSES, TIME_CLASSES, 2]
    event, time, place = heads.understood(hidden.float().flatten(0, 1)).split(sizes, dim=1)
    weights = torch.ones(EVENT_CLASSES, device=event.device)
    weights[1:] = 5.0
    there = labels["shape"].flatten() > 0
    loss = functional.cross_entropy(event, labels["event"].flatten(), weight=weights)
    loss = loss + 4 * functional.mse_loss(place[there], labels["place"].flatten(0, 2)[there])
    if kind == "video":
        loss = loss + 0.5 * functional.cross_entropy(time, labels["time"].flatten())
    return loss
