"""Run Qwen2.5-VL's vision tower over its shared weights. It takes whole batches of images and temporal groups.

The same function as transformers' Qwen2_5_VisionTransformerPretrainedModel computes: one attention call for all
windows instead of one a window, and few passes over the hidden states between the matrix products.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unifiedserve.device import Device
from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaKind, MediaPlan
from unifiedserve.models.encoder_layers import pause
from unifiedserve.models.families.qwen2_5_vl.patch_embedding import PatchEmbedding
from unifiedserve.models.families.qwen2_5_vl.vision_layout import (
    Geometry,
    Layout,
    Run,
    rearranged,
    unit_layout,
    window_layout,
)
from unifiedserve.ranks.encoder import DividedBlocks


class VisionTower:
    """Run a vision tower over `modules`, transformers' own, whose parameters are used in place.

    `normalisation` has the mean and deviation of a row of uint8 pixels, for each kind of media; blocks may be `divided`
    among ranks. Raises ConfigError for
    an activation other than SiLU or a dtype that the device does not know.
    """

    def __init__(
        self,
        modules: Any,
        normalisation: Mapping[MediaKind, tuple[Tensor, Tensor]],
        device: Device,
        divided: DividedBlocks | None = None,
    ) -> None:
        config = modules.config
        if config.hidden_act != "silu":
            raise ConfigError(f"vision_config.hidden_act is {config.hidden_act!r}; supported is 'silu'")
        self._device = device
        self._kernels = device.kernels.vision
        self._kernels.check_dtype(modules.dtype)
        self._divided = divided or DividedBlocks(None)
        self._heads: int = config.num_heads // self._divided.ranks
        self._geometry = Geometry(
            config.spatial_merge_size,
            config.window_size // config.spatial_merge_size // config.patch_size,
            config.hidden_size // config.num_heads,
            config.rope_parameters["rope_theta"],
        )
        self._whole_units = frozenset(config.fullatt_block_indexes)
        self._embed = PatchEmbedding(modules.patch_embed.proj.weight, normalisation, device)
        self._blocks = [(block, self._kernels.gated(block.mlp)) for block in modules.blocks]
        self._merger = modules.merger

    @torch.inference_mode()
    def __call__(self, patches: Tensor, units: Sequence[tuple[MediaPlan, int]]) -> Tensor:
        """Encode uint8 [N, row_bytes], whole `units` of each plan in order, to [M, out_hidden]."""
        parts = list(_parts(units, self._kernels.rows_at_once))
        rows = torch.split(patches, [sum(count * plan.patches_per_unit for plan, count in part) for part in parts])
        tokens = [self._encode(each, part) for each, part in zip(rows, parts, strict=True)]
        return tokens[0] if len(tokens) == 1 else torch.cat(tokens)

    def _encode(self, patches: Tensor, units: Sequence[tuple[MediaPlan, int]]) -> Tensor:
        runs = [Run(*plan.grid[1:], count) for plan, count in units]
        windows, whole = window_layout(runs, self._geometry), unit_layout(runs, self._geometry)
        embedded = self._embed(patches, [(plan.kind, count * plan.patches_per_unit) for plan, count in units])
        moves = [self._device.upload(move) for move in (windows.moved_from(whole), whole.moved_from(windows))]
        windows, whole = windows.on(self._device), whole.on(self._device)
        layout = whole if 0 in self._whole_units else windows
        hidden = rearranged(embedded, layout.order)
        for number, (block, mlp) in enumerate(self._blocks):
            pause()
            wanted = whole if number in self._whole_units else windows
            if wanted is not layout:
                hidden, layout = rearranged(hidden, moves[wanted is whole]), wanted
            hidden = self._block(block, mlp, hidden, layout)
        merged = self._merge(hidden)
        return torch.empty_like(merged).index_copy_(0, layout.order, merged)

    def _block(self, block: Any, mlp: Callable[[Tensor, Tensor], Tensor], hidden: Tensor, layout: Layout) -> Tensor:
        kernels, attention = self._kernels, block.attn
        qkv = kernels.linear(kernels.norm(hidden, block.norm1), attention.qkv)
        attended = kernels.attend(qkv, self._heads, layout.cos, layout.sin, layout.groups)
        divided = self._divided
        hidden = divided.summed(kernels.linear_plus(attended, attention.proj, divided.summand(hidden)))
        return divided.summed(mlp(kernels.norm(hidden, block.norm2), divided.summand(hidden)))

    def _merge(self, hidden: Tensor) -> Tensor:
        first, _, second = self._merger.mlp
        normed = self._kernels.norm(hidden, self._merger.ln_q).view(-1, first.in_features)
        return self._kernels.linear(self._kernels.linear(normed, first, "gelu"), second)


def _parts(units: Sequence[tuple[MediaPlan, int]], patches: int) -> Iterator[list[tuple[MediaPlan, int]]]:
    """Yield the units in parts of so many patches at most. A single unit may have more."""
    part: list[tuple[MediaPlan, int]] = []
    free = patches
    for plan, count in units:
        left = count
        while left:
            fitting = min(left, max(free, 0) // plan.patches_per_unit)
            if not fitting and part:
                yield part
                part, free = [], patches
                continue
            fitting = max(fitting, 1)
            part.append((plan, fitting))
            free -= fitting * plan.patches_per_unit
            left -= fitting
    yield part
