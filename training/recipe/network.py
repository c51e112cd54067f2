"""The model's forward pass in training: transformers' modules, run over clips of one size at once.

The same function as transformers' own, which runs vision attention one group of frames after another. Under autocast.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.recipe.batches import Batch
from training.recipe.heads import KNOWN, PLACED, POINTERS, POINTING, REMEMBERED
from training.recipe.prompts import ROW
from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules

MERGE = 2


class Reading(NamedTuple):
    """The result of reading.

    `logits` [answer tokens, vocabulary]; `inner` visual tokens [clips, tokens, hidden] after some layers; `pointed`
    [rows, heads, ROW, visual tokens], the attention of the layer POINTING; `wanted` [rows, ROW], where it should go;
    `text` [rows, ROW, hidden], the rows' tokens after that layer.
    """

    logits: Tensor
    inner: dict[int, Tensor]
    pointed: Tensor
    wanted: dict[str, Tensor]
    text: Tensor


class Network(nn.Module):
    """The forward pass of transformers' `model`; `fast` compiles what treats each token alone: a minute, once.

    `dtype` is that of autocast around it.
    """

    def __init__(self, model: Any, fast: bool = False, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model, self._dtype = model, dtype
        self._embed = torch.compile(embed, dynamic=True) if fast else embed
        self._before = torch.compile(before, dynamic=True) if fast else before
        self._after = torch.compile(after, dynamic=True) if fast else after
        self._normalisation = MediaRules(0, 0).normalisation()

    def encode(self, batch: Batch) -> Tensor:
        """Encode a batch's rows to visual tokens [clips, groups, cells, hidden]."""
        visual = self.model.model.visual
        mean, deviation = (values.to(batch.rows.device) for values in self._normalisation)
        groups = batch.clips * batch.groups
        hidden = self._embed(batch.rows, mean, deviation, visual.patch_embed.proj.weight.flatten(1))
        cosine, sine = visual.rotary_pos_emb(hidden, patch_positions(batch.grid).to(hidden.device))
        cosine, sine = (x.to(self._dtype).repeat(groups, 1) for x in (cosine, sine))
        for block in visual.blocks:
            attention, count = block.attn, block.attn.num_heads
            parts = self._before(block.norm1, (attention.qkv,), hidden, cosine, sine, (count, count, count))
            mixed = attend(*(by_head(x, groups) for x in parts)).flatten(0, 1)
            hidden = self._after(attention.proj, block.norm2, block.mlp, hidden, mixed)
        cells = _norm(visual.merger.ln_q, hidden).view(batch.clips, batch.groups, -1, MERGE**2 * hidden.shape[-1])
        tokens: Tensor = visual.merger.mlp(cells)
        return tokens

    def read(self, batch: Batch, visual: Tensor) -> Reading:
        """Run the language model over a batch's conversations and its visual tokens."""
        ids, language = batch.sequences["ids"], self.model.model.language_model
        own = visual.flatten(1, 2)
        start = int((ids[0] == visual_id(self.model, batch.kind)).nonzero()[0])
        prefix = start + own.shape[1]
        embeds = language.embed_tokens(ids)
        embeds = torch.cat([embeds[:, :start], own.to(embeds.dtype), embeds[:, prefix:]], dim=1)
        turns = language.rotary_emb(embeds, batch.sequences["positions"])
        cosine, sine = (_flat(x, prefix).to(self._dtype) for x in turns)
        seen = sight(batch.sequences["branches"][:, prefix:], prefix)
        bias = torch.where(seen, 0.0, float("-inf")).to(self._dtype)
        hidden, inner = _flat(embeds, prefix), {}
        answered = _flat(batch.sequences["turns"], prefix) >= 0
        for number, layer in enumerate(language.layers):
            attention, config = layer.self_attn, language.config
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
            parts = self._before(layer.input_layernorm, projections, hidden, cosine, sine, heads)
            mixed, weights = attend_in_rows(*parts, bias[:, None], batch.clips)
            if number + 1 == len(language.layers):  # nobody looks at the others any more
                hidden, mixed = hidden[answered], mixed[answered]
            hidden = self._after(attention.o_proj, layer.post_attention_layernorm, layer.mlp, hidden, mixed)
            if number + 1 in (PLACED, REMEMBERED, KNOWN):
                inner[number + 1] = hidden[: batch.clips * prefix].view(batch.clips, prefix, -1)[:, start:]
            if number + 1 == POINTING:
                pointed = weights[..., start:prefix]
                text = hidden[batch.clips * prefix :].view(-1, ROW, hidden.shape[1])
        logits = self.model.lm_head(_norm(language.norm, hidden))
        wanted = {name: batch.sequences[name][:, prefix:].reshape(-1, ROW) for name in POINTERS.values()}
        return Reading(logits, inner, pointed, wanted, text)


def embed(rows: Tensor, mean: Tensor, deviation: Tensor, weight: Tensor) -> Tensor:
    """Embed the pixels of patches as [patches, hidden]."""
    return functional.linear((rows.float() - mean) / deviation, weight).float()


def before(
    norm: Any, projections: tuple[Any, ...], hidden: Tensor, cosine: Tensor, sine: Tensor, heads: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return turned queries and keys, and values, [tokens, heads, width] of tokens [tokens, hidden]."""
    normed = _norm(norm, hidden)
    together = torch.cat([projection(normed) for projection in projections], dim=-1)
    q, k, v = together.view(len(together), sum(heads), -1).split_with_sizes(heads, dim=1)
    cosine, sine = cosine[:, None], sine[:, None]
    return _turned(q, cosine, sine), _turned(k, cosine, sine), v


def after(projection: Any, norm: Any, mlp: Any, hidden: Tensor, mixed: Tensor) -> Tensor:
    """Return the layer's output, from its input and what attention has mixed."""
    hidden = hidden + projection(mixed)
    normed = _norm(norm, hidden)
    result: Tensor = hidden + mlp.down_proj(functional.silu(mlp.gate_proj(normed)) * mlp.up_proj(normed))
    return result


def attend_in_rows(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, clips: int) -> tuple[Tensor, Tensor]:
    """Mix values [tokens, heads, width] to [tokens, heads' widths]: all clips' prefixes, then all rows.

    The rows' weights [rows, heads, ROW, prefix + ROW] are returned, too.

    A prefix is causal; a row sees its clip's prefix and itself, with `bias` [rows, 1, ROW, prefix + ROW].
    """
    prefix, repeats = bias.shape[3] - ROW, q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    early = [by_head(x[: clips * prefix], clips) for x in (q, k, v)]
    causal = torch.full((prefix, prefix), float("-inf"), dtype=bias.dtype, device=bias.device).triu(1)
    late = [by_head(x[clips * prefix :], len(bias)) for x in (q, k, v)]
    keys, values = (
        torch.cat([first.repeat_interleave(len(bias) // clips, 0), own], dim=2)
        for first, own in zip(early[1:], late[1:], strict=True)
    )
    weights = weigh(late[0], keys, bias)
    return torch.cat(
        [attend(early[0], early[1], early[2], causal).flatten(0, 1), mix(weights, values).flatten(0, 1)]
    ), weights


def by_head(x: Tensor, parts: int) -> Tensor:
    """Turn [tokens, heads, width] into [parts, heads, tokens of one, width]."""
    return x.view(parts, -1, *x.shape[1:]).transpose(1, 2)


def _flat(x: Tensor, prefix: int) -> Tensor:
    """Flatten [clips, length, ...] to all clips' prefixes and then all their rows."""
    return torch.cat([x[:, :prefix].flatten(0, 1), x[:, prefix:].flatten(0, 1)])


def patch_positions(grid: tuple[int, int]) -> Tensor:
    """Return row and column of each patch, in the order of the rows: [patches, 2]."""
    rows, columns = grid
    places = torch.stack(torch.meshgrid(torch.arange(MERGE * rows), torch.arange(MERGE * columns), indexing="ij"))
    return places.view(2, rows, MERGE, columns, MERGE).permute(1, 3, 2, 4, 0).flatten(0, 3)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attend from [n, heads, length, width] to [n, length, heads' widths].

    By plain products: on CPUs the backward pass of torch's fused attention is several times slower for short sequences.
    """
    return mix(weigh(q, k, bias), v)


@torch.autocast("cpu", enabled=False)  # type: ignore[untyped-decorator]  # else softmax is done in float32
def weigh(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
    weights: Tensor = (scores if bias is None else scores + bias).softmax(-1)
    return weights


def mix(weights: Tensor, v: Tensor) -> Tensor:
    return (weights @ v).transpose(1, 2).flatten(2)


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def _norm(module: Any, x: Tensor) -> Tensor:
    return functional.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon)


def visual_id(model: Any, kind: str) -> int:
    number: int = model.config.image_token_id if kind == "image" else model.config.video_token_id
    return number


def sight(branches: Tensor, prefix: int) -> Tensor:
    """Return what tokens see, bool [clips * rows, ROW, prefix + ROW]: the prefix, and their branch before them.

    `branches` are those of the tokens after the prefix.
    """
    own = branches.reshape(-1, ROW)
    before = torch.ones(ROW, ROW, dtype=torch.bool, device=branches.device).tril()
    same = (own[:, :, None] == own[:, None, :]) & before
    return functional.pad(same, (prefix, 0), value=True)
