"""Run the vision towers of Qwen2-VL and Qwen3-VL over their shared weights: every patch sees all of its unit.

The same function as transformers' Qwen2VisionTransformerPretrainedModel and Qwen3VLVisionModel compute, for whole
batches of images and temporal groups: attention runs over all units of a size at once instead of one at a time.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from unifiedserve.device import Device
from unifiedserve.messages.media import MediaKind, MediaPlan
from unifiedserve.models.encoder_layers import pause
from unifiedserve.models.families.qwen2_5_vl.patch_embedding import PatchEmbedding
from unifiedserve.models.families.qwen2_5_vl.vision_layout import Geometry, Layout, Run, rearranged, unit_layout
from unifiedserve.ranks.encoder import DividedBlocks

POSITION_TABLES = 4  # tables kept for grids that come again


class UnitTower:
    """Run a vision tower over `modules`, transformers' own, whose parameters are used in place.

    `normalisation` has the mean and deviation of a row of uint8 pixels, for each kind of media; blocks may be `divided`
    among ranks. Raises ConfigError for
    a dtype that the device does not know.
    """

    def __init__(
        self,
        modules: Any,
        normalisation: Mapping[MediaKind, tuple[Tensor, Tensor]],
        device: Device,
        divided: DividedBlocks | None = None,
    ) -> None:
        self._device = device
        self._kernels = device.kernels.vision
        self._kernels.check_dtype(modules.dtype)
        config, projection = modules.config, modules.patch_embed.proj
        self._modules = modules
        self._divided = divided or DividedBlocks(None)
        self._heads: int = config.num_heads // self._divided.ranks
        self._geometry = Geometry(
            config.spatial_merge_size,
            None,
            len(projection.weight) // config.num_heads,
            config.rope_parameters["rope_theta"],
        )
        self._embed = PatchEmbedding(projection.weight, normalisation, device)
        self._offsets = lru_cache(maxsize=POSITION_TABLES)(self._offset)
        levels = getattr(modules, "deepstack_visual_indexes", ())
        self._levels = dict(zip(levels, getattr(modules, "deepstack_merger_list", ()), strict=True))

    @torch.inference_mode()
    def __call__(self, patches: Tensor, units: Sequence[tuple[MediaPlan, int]]) -> Tensor:
        """Encode uint8 [N, row_bytes] to [M, out_hidden * (1 + levels)].

        The rows are whole `units` of each plan in order. A visual token's columns are the tower's output and then those
        that DeepStack takes from inner layers.
        """
        layout = unit_layout([Run(*plan.grid[1:], count) for plan, count in units], self._geometry).on(self._device)
        embedded = self._embed(patches, [(plan.kind, count * plan.patches_per_unit) for plan, count in units])
        self._place(embedded, units)
        hidden = rearranged(embedded, layout.order)
        inner = []
        for number, block in enumerate(self._modules.blocks):
            pause()
            hidden = self._block(block, hidden, layout)
            if number in self._levels:
                inner.append(self._merge(self._levels[number], hidden))
        merged = torch.cat([self._merge(self._modules.merger, hidden), *inner], dim=1)
        return torch.empty_like(merged).index_copy_(0, layout.order, merged)

    def _place(self, embedded: Tensor, units: Sequence[tuple[MediaPlan, int]]) -> None:
        """Add to embedded patches what depends on their place alone."""
        if not hasattr(self._modules, "pos_embed"):
            return
        row = 0
        for plan, count in units:
            rows = count * plan.patches_per_unit
            embedded[row : row + rows].view(count, plan.patches_per_unit, -1).add_(self._offsets(*plan.grid[1:]))
            row += rows

    def _offset(self, height: int, width: int) -> Tensor:
        """Return a unit's [height * width, hidden]: the learned positions, resampled to its grid, and the bias."""
        modules, size = self._modules, self._geometry.merge_size
        learned = modules.pos_embed.weight.float().unflatten(0, (modules.num_grid_per_side, -1)).permute(2, 0, 1)
        resampled = functional.interpolate(
            learned[None],
            (height, width),
            mode=modules.interpolation_mode,
            align_corners=modules.interpolation_align_corners,
        )
        blocks = resampled.view(-1, height // size, size, width // size, size).permute(1, 3, 2, 4, 0)
        offset: Tensor = blocks.flatten(0, 3) + modules.patch_embed.proj.bias
        return offset.to(modules.dtype)

    def _block(self, block: Any, hidden: Tensor, layout: Layout) -> Tensor:
        kernels, attention, mlp, divided = self._kernels, block.attn, block.mlp, self._divided
        qkv = kernels.linear(block.norm1(hidden), attention.qkv)
        attended = kernels.attend(qkv, self._heads, layout.cos, layout.sin, layout.groups)
        hidden = divided.summed(kernels.linear_plus(attended, attention.proj, divided.summand(hidden)))
        first, second = _linears(mlp)
        activation = mlp.act if hasattr(mlp, "act") else mlp.act_fn
        inner = activation(kernels.linear(block.norm2(hidden), first))
        return divided.summed(kernels.linear_plus(inner, second, divided.summand(hidden)))

    def _merge(self, merger: Any, hidden: Tensor) -> Tensor:
        """Merge [N, hidden] to [M, out_hidden]; some mergers normalise patches, some what they are merged to."""
        norm = merger.ln_q if hasattr(merger, "ln_q") else merger.norm
        first, second = _linears(merger)
        normed = norm(hidden.view(-1, *norm.normalized_shape)).view(-1, first.in_features)
        return self._kernels.linear(self._kernels.linear(normed, first, "gelu"), second)


def _linears(module: Any) -> list[Any]:
    """Return the two layers of a perceptron, which families name differently."""
    return [part for part in module.modules() if hasattr(part, "in_features")]
