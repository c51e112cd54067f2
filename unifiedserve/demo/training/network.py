"""The model's forward pass in training: transformers' modules, run over clips of one size at once.

The same function as transformers' own, which runs vision attention one group of frames after another. Under autocast.
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
from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules

INNER = 3  # the language layer after which visual tokens should know what happened where and when
MERGE = 2
MOTION = 4.0  # cells a group: what a fast thing moves


class Heads(nn.Module):
    """Linear readings of visual tokens, for the labels; thrown away after training."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.seen = nn.Linear(hidden, SHAPE_CLASSES + COLOUR_CLASSES + 2 + 3 + 2 + 2)
        self.understood = nn.Linear(hidden, EVENT_CLASSES + TIME_CLASSES + 2)


class Network(nn.Module):
    """`model` is transformers'. Its parts are compiled if `fast`: that takes minutes once, steps take half the time."""

    def __init__(self, model: Any, fast: bool = False) -> None:
        super().__init__()
        self.model = model
        self._tower = torch.compile(tower, dynamic=True) if fast else tower
        self._layers = torch.compile(layers, dynamic=True) if fast else layers
        self._normalisation = MediaRules(0, 0).normalisation()

    def encode(self, batch: Batch) -> Tensor:
        """Visual tokens [clips, groups, cells, hidden] of a batch's rows."""
        visual = self.model.model.visual
        mean, deviation = (values.to(batch.rows.device) for values in self._normalisation)
        pixels = ((batch.rows.float() - mean) / deviation).view(batch.clips * batch.groups, -1, len(mean))
        cosine, sine = visual.rotary_pos_emb(pixels, patch_positions(batch.grid).to(pixels.device))
        tokens: Tensor = self._tower(visual, pixels, cosine, sine)
        return tokens.view(batch.clips, batch.groups, *tokens.shape[1:])

    def read(self, batch: Batch, visual: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [answer tokens, vocabulary], and hidden states [clips, visual tokens, hidden] after layer INNER."""
        ids, language = batch.sequences["ids"], self.model.model.language_model
        own = visual.flatten(1, 2)
        count = own.shape[1]
        start = int((ids[0] == visual_id(self.model, batch.kind)).nonzero()[0])
        embeds = language.embed_tokens(ids)
        embeds = torch.cat([embeds[:, :start], own.to(embeds.dtype), embeds[:, start + count :]], dim=1)
        cosine, sine = language.rotary_emb(embeds, batch.sequences["positions"])
        hidden, inner = self._layers(language, embeds, cosine, sine, sight(batch.sequences["branches"]))
        answered = hidden[batch.sequences["turns"] >= 0]
        return self.model.lm_head(answered), inner[:, start : start + count]


def tower(visual: Any, pixels: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """[groups, cells, hidden] of normalised rows [groups, patches, row]: what a group of frames shows."""
    count = visual.config.num_heads
    hidden = functional.linear(pixels, visual.patch_embed.proj.weight.flatten(1)).float()
    cosine, sine = cosine.bfloat16(), sine.bfloat16()
    for block in visual.blocks:
        q, k, v = attention_inputs(block.attn.qkv(_norm(block.norm1, hidden)), (count, count, count))
        mixed = attend(_turned(q, cosine, sine), _turned(k, cosine, sine), v)
        hidden = hidden + block.attn.proj(mixed)
        hidden = hidden + _perceive(block.mlp, _norm(block.norm2, hidden))
    groups, patches, size = hidden.shape
    merged = _norm(visual.merger.ln_q, hidden).view(groups, patches // MERGE**2, MERGE**2 * size)
    tokens: Tensor = visual.merger.mlp(merged)
    return tokens


def layers(language: Any, hidden: Tensor, cosine: Tensor, sine: Tensor, sight: Tensor) -> tuple[Tensor, Tensor]:
    """Final hidden states [clips, length, hidden] of embeddings, and those after layer INNER."""
    config = language.config
    kinds = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
    bias = torch.where(sight, 0.0, float("-inf"))[:, None].to(torch.bfloat16)
    cosine, sine = cosine[:, None].to(torch.bfloat16), sine[:, None].to(torch.bfloat16)
    inner = hidden
    for number, layer in enumerate(language.layers):
        attention = layer.self_attn
        normed = _norm(layer.input_layernorm, hidden)
        together = torch.cat([attention.q_proj(normed), attention.k_proj(normed), attention.v_proj(normed)], dim=-1)
        q, k, v = attention_inputs(together, kinds)
        repeats = kinds[0] // kinds[1]
        k = _turned(k, cosine, sine).repeat_interleave(repeats, 1)
        mixed = attend(_turned(q, cosine, sine), k, v.repeat_interleave(repeats, 1), bias)
        hidden = hidden + attention.o_proj(mixed)
        hidden = hidden + _perceive(layer.mlp, _norm(layer.post_attention_layernorm, hidden))
        if number + 1 == INNER:
            inner = hidden
    return _norm(language.norm, hidden), inner


def patch_positions(grid: tuple[int, int]) -> Tensor:
    """[patches, 2]: row and column of each patch, in the order of the rows."""
    rows, columns = grid
    places = torch.stack(torch.meshgrid(torch.arange(MERGE * rows), torch.arange(MERGE * columns), indexing="ij"))
    return places.view(2, rows, MERGE, columns, MERGE).permute(1, 3, 2, 4, 0).flatten(0, 3)


def attention_inputs(together: Tensor, heads: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [n, heads, length, width] of projections [n, length, all heads' widths]."""
    n, length, width = together.shape
    q, k, v = together.view(n, length, sum(heads), width // sum(heads)).transpose(1, 2).split_with_sizes(heads, dim=1)
    return q, k, v


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """[n, length, heads' widths] from [n, heads, length, width].

    By plain products: on CPUs the backward pass of torch's fused attention is several times slower for short sequences.
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
    if bias is not None:
        scores = scores + bias
    weights = scores.softmax(-1, dtype=torch.float32).to(v.dtype)
    mixed: Tensor = (weights @ v).transpose(1, 2).flatten(2)
    return mixed


def _perceive(mlp: Any, x: Tensor) -> Tensor:
    result: Tensor = mlp.down_proj(functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
    return result


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def _norm(module: Any, x: Tensor) -> Tensor:
    return functional.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon)


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
