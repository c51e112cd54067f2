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
    HEADING_CLASSES,
    NOTHING,
    SHAPE_CLASSES,
    TIME_CLASSES,
)
from unifiedserve.demo.training.prompts import ROW
from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules

PLACED = 1  # the language layer after which visual tokens should know where in the picture they are,
KNOWN = 3  # and that after which they should know what happened, when, and which way things go
MERGE = 2
MOTION = 4.0  # cells a group: what a fast thing moves


class Heads(nn.Module):
    """Linear readings of visual tokens, for the labels; thrown away after training."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.seen = nn.Linear(hidden, SHAPE_CLASSES + COLOUR_CLASSES + 2 + 3 + 2 + 2)
        self.placed = nn.Linear(hidden, 2)
        self.known = nn.Linear(hidden, EVENT_CLASSES + TIME_CLASSES + 2 + HEADING_CLASSES)


class Network(nn.Module):
    """`model` is transformers'. What treats each token alone is compiled if `fast`: that takes a minute, once."""

    def __init__(self, model: Any, fast: bool = False) -> None:
        super().__init__()
        self.model = model
        self._before = torch.compile(before, dynamic=True) if fast else before
        self._after = torch.compile(after, dynamic=True) if fast else after
        self._normalisation = MediaRules(0, 0).normalisation()

    def encode(self, batch: Batch) -> Tensor:
        """Visual tokens [clips, groups, cells, hidden] of a batch's rows."""
        visual = self.model.model.visual
        mean, deviation = (values.to(batch.rows.device) for values in self._normalisation)
        pixels = (batch.rows.float() - mean) / deviation
        groups = batch.clips * batch.groups
        cosine, sine = visual.rotary_pos_emb(pixels, patch_positions(batch.grid).to(pixels.device))
        cosine, sine = (x.bfloat16().repeat(groups, 1) for x in (cosine, sine))
        hidden = functional.linear(pixels, visual.patch_embed.proj.weight.flatten(1)).float()
        for block in visual.blocks:
            attention, count = block.attn, block.attn.num_heads
            parts = self._before(block.norm1, (attention.qkv,), hidden, cosine, sine, (count, count, count))
            mixed = attend(*(by_head(x, groups) for x in parts)).flatten(0, 1)
            hidden = self._after(attention.proj, block.norm2, block.mlp, hidden, mixed)
        cells = _norm(visual.merger.ln_q, hidden).view(batch.clips, batch.groups, -1, MERGE**2 * hidden.shape[-1])
        tokens: Tensor = visual.merger.mlp(cells)
        return tokens

    def read(self, batch: Batch, visual: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits [answer tokens, vocabulary]; visual tokens [clips, tokens, hidden] after PLACED and KNOWN layers."""
        ids, language = batch.sequences["ids"], self.model.model.language_model
        own = visual.flatten(1, 2)
        start = int((ids[0] == visual_id(self.model, batch.kind)).nonzero()[0])
        prefix = start + own.shape[1]
        embeds = language.embed_tokens(ids)
        embeds = torch.cat([embeds[:, :start], own.to(embeds.dtype), embeds[:, prefix:]], dim=1)
        cosine, sine = (_flat(x, prefix).bfloat16() for x in language.rotary_emb(embeds, batch.sequences["positions"]))
        bias = torch.where(sight(batch.sequences["branches"][:, prefix:], prefix), 0.0, float("-inf")).bfloat16()
        hidden, inner = _flat(embeds, prefix), {}
        for number, layer in enumerate(language.layers):
            attention, config = layer.self_attn, language.config
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
            parts = self._before(layer.input_layernorm, projections, hidden, cosine, sine, heads)
            mixed = attend_in_rows(*parts, bias[:, None], batch.clips)
            hidden = self._after(attention.o_proj, layer.post_attention_layernorm, layer.mlp, hidden, mixed)
            if number + 1 in (PLACED, KNOWN):
                early = hidden[: batch.clips * prefix].view(batch.clips, prefix, -1)
                inner[number + 1] = early[:, start:]
        answered = _norm(language.norm, hidden)[_flat(batch.sequences["turns"], prefix) >= 0]
        return self.model.lm_head(answered), inner


def before(
    norm: Any, projections: tuple[Any, ...], hidden: Tensor, cosine: Tensor, sine: Tensor, heads: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Turned queries and keys, and values [tokens, heads, width] of tokens [tokens, hidden]."""
    normed = _norm(norm, hidden)
    together = torch.cat([projection(normed) for projection in projections], dim=-1)
    q, k, v = together.view(len(together), sum(heads), -1).split_with_sizes(heads, dim=1)
    cosine, sine = cosine[:, None], sine[:, None]
    return _turned(q, cosine, sine), _turned(k, cosine, sine), v


def after(projection: Any, norm: Any, mlp: Any, hidden: Tensor, mixed: Tensor) -> Tensor:
    """The layer's output, from its input and what attention has mixed."""
    hidden = hidden + projection(mixed)
    normed = _norm(norm, hidden)
    result: Tensor = hidden + mlp.down_proj(functional.silu(mlp.gate_proj(normed)) * mlp.up_proj(normed))
    return result


def attend_in_rows(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, clips: int) -> Tensor:
    """Mixed values [tokens, heads' widths] of [tokens, heads, width]: all clips' prefixes, then all rows.

    A prefix is causal; a row sees its clip's prefix and itself, with `bias` [rows, 1, ROW, prefix + ROW].
    """
    prefix, repeats = bias.shape[3] - ROW, q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    early = [by_head(x[: clips * prefix], clips) for x in (q, k, v)]
    causal = torch.full((prefix, prefix), float("-inf"), dtype=bias.dtype, device=bias.device).triu(1)
    mixed = attend(*early, causal).flatten(0, 1)
    if not len(bias):
        return mixed
    late = [by_head(x[clips * prefix :], len(bias)) for x in (q, k, v)]
    keys, values = (
        torch.cat([first.repeat_interleave(len(bias) // clips, 0), own], dim=2)
        for first, own in zip(early[1:], late[1:], strict=True)
    )
    return torch.cat([mixed, attend(late[0], keys, values, bias).flatten(0, 1)])


def by_head(x: Tensor, parts: int) -> Tensor:
    """[parts, heads, tokens of one, width] of [tokens, heads, width]."""
    return x.unflatten(0, (parts, -1)).transpose(1, 2)


def _flat(x: Tensor, prefix: int) -> Tensor:
    """[clips, length, ...] as all clips' prefixes and then all their rows."""
    return torch.cat([x[:, :prefix].flatten(0, 1), x[:, prefix:].flatten(0, 1)])


def patch_positions(grid: tuple[int, int]) -> Tensor:
    """[patches, 2]: row and column of each patch, in the order of the rows."""
    rows, columns = grid
    places = torch.stack(torch.meshgrid(torch.arange(MERGE * rows), torch.arange(MERGE * columns), indexing="ij"))
    return places.view(2, rows, MERGE, columns, MERGE).permute(1, 3, 2, 4, 0).flatten(0, 3)


@torch.autocast("cpu", enabled=False)
def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """[n, length, heads' widths] from [n, heads, length, width].

    By plain products: on CPUs the backward pass of torch's fused attention is several times slower for short sequences.
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
    if bias is not None:
        scores = scores + bias
    mixed: Tensor = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    return mixed


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def _norm(module: Any, x: Tensor) -> Tensor:
    return functional.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon)


def visual_id(model: Any, kind: str) -> int:
    number: int = model.config.image_token_id if kind == "image" else model.config.video_token_id
    return number


def sight(branches: Tensor, prefix: int) -> Tensor:
    """bool [clips * rows, ROW, prefix + ROW]: a token sees the prefix, and what comes before it in its own branch.

    `branches` are those of the tokens after the prefix.
    """
    own = branches.reshape(-1, ROW)
    before = torch.ones(ROW, ROW, dtype=torch.bool, device=branches.device).tril()
    same = (own[:, :, None] == own[:, None, :]) & before
    return functional.pad(same, (prefix, 0), value=True)


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


def understood_loss(heads: Heads, inner: dict[int, Tensor], labels: dict[str, Tensor], kind: str) -> Tensor:
    """Loss of what visual tokens know within the language model: places, events, times and headings."""
    sizes = [EVENT_CLASSES, TIME_CLASSES, 2, HEADING_CLASSES]
    event, time, place, heading = heads.known(inner[KNOWN].float().flatten(0, 1)).split(sizes, dim=1)
    placed = heads.placed(inner[PLACED].float().flatten(0, 1))
    weights = torch.ones(EVENT_CLASSES, device=event.device)
    weights[1:] = 5.0
    there = labels["shape"].flatten() > 0
    loss = functional.cross_entropy(event, labels["event"].flatten(), weight=weights)
    places = labels["place"].flatten(0, 2)[there]
    loss = loss + 4 * functional.mse_loss(place[there], places) + 8 * functional.mse_loss(placed[there], places)
    if kind == "video":
        headings = labels["heading"].flatten()
        if (headings != NOTHING).any():
            loss = loss + functional.cross_entropy(heading, headings, ignore_index=NOTHING)
        loss = loss + 0.5 * functional.cross_entropy(time, labels["time"].flatten())
    return loss
