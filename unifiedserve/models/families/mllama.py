"""Adapt Llama 3.2 Vision: layers of cross-attention read an image's tiles.

In the prompt each image is a single token.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from flashcodec.geometry import canvas_grids
from torch import Tensor

from flashcodec import TileLayout
from unifiedserve.attention import RaggedBatch
from unifiedserve.device import AttentionStep
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.messages.media import MediaOptions, MediaPlan
from unifiedserve.models.pictures import (
    PictureAdapter,
    PictureProcessor,
    Units,
    check_side,
    interpolation_of,
    square_side,
)
from unifiedserve.models.scopes import Scope


class MllamaProcessor(PictureProcessor):
    keeps_visual_rows: ClassVar[bool] = True
    image_processors: ClassVar[frozenset[str]] = frozenset({"MllamaImageProcessor"})
    image_fields: ClassVar[frozenset[str]] = frozenset({"max_image_tiles"})

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self.image_rules.require("max_image_tiles", config.vision_config.max_num_tiles)
        self._interpolation = interpolation_of(self.image_rules)
        self.picture_token("image", self.tokenizer.convert_ids_to_tokens(config.image_token_index))
        self.visual_dim = 2 * len(config.text_config.cross_attention_layers) * _kv_width(config)

    def picture_side(self) -> int:
        side = square_side(self.image_rules)
        check_side(self.image_rules, "size", side, self.config)
        return side

    def runs(self, plan: MediaPlan) -> list[int]:
        return [1]

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        most = self.config.vision_config.max_num_tiles
        layout = replace(TileLayout.mllama(height, width, self.side, most), interpolation=self._interpolation)
        return MediaPlan(
            kind="image",
            layout=layout,
            units=1,
            patches_per_unit=self.side * layout.tiles,
            tokens_per_unit=most * _tile_tokens(self.config),  # tiles that are not there can be attended to, too
        )


class MllamaAdapter(PictureAdapter):
    keeps_visual_rows: ClassVar[bool] = True

    def __init__(self, config: Any, *args: Any) -> None:
        super().__init__(config, *args)
        self.visual_ids = frozenset()  # the image token has an embedding of its own
        self._cross = [layer.cross_attn for layer in self.language_model.layers if hasattr(layer, "cross_attn")]
        for number, attention in enumerate(self._cross):
            attention.layer_idx = number  # among the keys and values in a row of the visual buffer

    def scopes(self, token_ids: Sequence[int], media: Sequence[MediaPlan]) -> list[Scope]:
        """Let text see the image before it, or all where several stand in a row. The tiles that pad them stay hidden.

        Text before the first image sees all that there is: that is what transformers makes of a mask without a key.
        """
        if not media:
            return []
        image, size = self.config.image_token_index, _tile_tokens(self.config)
        places = [place for place, token in enumerate(token_ids) if token == image]
        scopes: list[Scope] = []
        first = 0
        for place, plan in zip(places, media, strict=True):
            together = scopes and scopes[-1].start == place - 1
            own = range(first, first + size * plan.tiles.tiles)
            scopes.append(Scope(place, [*(scopes[-1].rows if together else []), own]))
            first += plan.tokens
        return [Scope(0, [range(first)], early=True), *scopes] if places[0] > 0 else scopes

    def features(self, pixels: Tensor, units: Units) -> Tensor:
        """Return the tiles' keys and values of all cross-attention layers: [M, layers * 2 * kv heads * head_dim]."""
        most = self.config.vision_config.max_num_tiles
        counts = [plan.tiles.tiles for plan, _ in units]
        padded = pixels.new_zeros(len(units), most, *pixels.shape[1:])
        for row, tiles in zip(padded, torch.split(pixels, counts), strict=True):
            row[: len(tiles)] = tiles
        real = self.device.upload((torch.arange(most) < torch.tensor(counts)[:, None]).long())
        grids = canvas_grids(most)
        ids = torch.tensor([1 + grids.index((plan.tiles.rows, plan.tiles.columns)) for plan, _ in units])
        model = self.model.model
        states = model.vision_model(padded[None], self.device.upload(ids)[None], real[None]).last_hidden_state
        projected = model.multi_modal_projector(states).flatten(0, -2)
        parts = [part for layer in self._cross for part in _keys_and_values(layer, projected)]
        return torch.cat(parts, dim=1)

    def run_modules(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: KVCache) -> Tensor:
        model, hidden, upload = self.language_model, embeds, self.device.upload
        step = self.device.kernels.attention(batch, kv)
        rotary = model.rotary_emb(hidden[None], positions)
        crossing = upload(batch.cross_rows) if batch.cross else None
        for layer in model.layers:
            if not hasattr(layer, "cross_attn"):
                hidden = layer(hidden[None], position_embeddings=rotary, attention_step=step)[0]
            elif crossing is not None:
                across = self._cross_layer(layer, hidden.index_select(0, crossing), batch, kv, step)
                hidden = hidden.index_copy(0, crossing, across)
        final: Tensor = model.norm(hidden.index_select(0, upload(batch.wanted_rows)))
        return final

    def _cross_layer(self, layer: Any, hidden: Tensor, batch: RaggedBatch, kv: KVCache, step: AttentionStep) -> Tensor:
        """Return hidden states [S, hidden] of tokens that attend to images, after a layer."""
        if kv.visual is None:
            raise ValueError("the KV cache has no visual buffer, to which tokens attend")
        attention = layer.cross_attn
        heads = hidden.shape[0], -1, attention.head_dim
        queries = attention.q_norm(attention.q_proj(layer.input_layernorm(hidden)).view(heads))
        rows = kv.visual.view(-1, len(self._cross), 2, attention.num_key_value_heads, attention.head_dim)
        keys, values = rows[:, attention.layer_idx].unbind(1)
        attended = step.attend_across(queries, keys, values, attention.scaling).flatten(1)
        hidden = hidden + layer.cross_attn_attn_gate.tanh() * attention.o_proj(attended)
        late = torch.cat([hidden.new_full((span.last - span.first, 1), not span.early) for span in batch.cross])
        out: Tensor = hidden + layer.cross_attn_mlp_gate.tanh() * (
            late * layer.mlp(layer.post_attention_layernorm(hidden))
        )
        return out


def _keys_and_values(attention: Any, states: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values [M, kv heads * head_dim] of states [M, hidden]."""
    keys, values = attention.k_proj(states), attention.v_proj(states)
    return attention.k_norm(keys.view(len(keys), -1, attention.head_dim)).flatten(1), values


def _kv_width(config: Any) -> int:
    text = config.text_config
    return int(text.num_key_value_heads * (text.hidden_size // text.num_attention_heads))


def _tile_tokens(config: Any) -> int:
    """Return the tokens of a tile: its patches and a class token."""
    vision = config.vision_config
    return int((vision.image_size // vision.patch_size) ** 2 + 1)
