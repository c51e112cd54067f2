"""Run the modules of the family in `mllama.py`."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from flashcodec.geometry import canvas_grids
from torch import Tensor

from unifiedserve.attention import RaggedBatch
from unifiedserve.device import AttentionStep
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.messages.media import MediaPlan
from unifiedserve.models.families.mllama import tile_tokens
from unifiedserve.models.picture_adapter import PictureAdapter
from unifiedserve.models.pictures import Units
from unifiedserve.models.scopes import Scope


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
        image, size = self.config.image_token_index, tile_tokens(self.config)
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
