"""Adapt the modules of Qwen2.5-VL to staged execution."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from unifiedserve.device import CPU, Device
from unifiedserve.messages.media import MediaPlan
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.families.qwen2_5_vl.rules import read_rules
from unifiedserve.models.families.qwen2_5_vl.vision_tower import VisionTower
from unifiedserve.models.processor_defaults import QWEN2_VIDEOS
from unifiedserve.placement import Network
from unifiedserve.ranks.encoder import DividedBlocks
from unifiedserve.ranks.group import Group


class Qwen25VLAdapter(LanguageAdapter):
    position_rows: ClassVar[int] = 3
    video_defaults: ClassVar[Mapping[str, Any]] = QWEN2_VIDEOS
    tower: ClassVar[type] = VisionTower
    divides_encoder: ClassVar[bool] = True

    def __init__(
        self,
        config: Any,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        model_dir: Path,
        device: Device = CPU,
        networks: Collection[Network] = tuple(Network),
        group: Group | None = None,
    ) -> None:
        super().__init__(config, weights, dtype, model_dir, device, networks, group)
        self._tower = self._make_tower(model_dir, DividedBlocks(group)) if Network.ENCODER in networks else None

    def positions(self, token_ids: Sequence[int], media: Sequence[MediaPlan]) -> Tensor:
        if not media:
            return torch.arange(len(token_ids)).expand(3, -1)
        ids = torch.tensor([token_ids])
        types = (ids == self.config.image_token_id).int() + 2 * (ids == self.config.video_token_id).int()
        images = [plan.grid for plan in media if plan.kind == "image"]
        videos = [plan for plan in media if plan.kind == "video"]
        positions, _ = self.model.model.get_rope_index(
            ids,
            mm_token_type_ids=types,
            image_grid_thw=torch.tensor(images) if images else None,
            video_grid_thw=torch.tensor([plan.grid for plan in videos]) if videos else None,
            second_per_grid_ts=torch.tensor([plan.seconds_per_unit for plan in videos]) if videos else None,
        )
        rows: Tensor = positions[:, 0]
        return rows

    def encode(self, patches: Tensor, units: Sequence[tuple[MediaPlan, int]]) -> Tensor:
        if self._tower is None:
            return super().encode(patches, units)
        tokens: Tensor = self._tower(patches, units)
        return tokens

    def _make_tower(self, model_dir: Path, divided: DividedBlocks) -> Any:
        image, video = read_rules(model_dir, self.video_defaults)
        normalisation = {"image": image.normalisation(), "video": video.normalisation()}
        return self.tower(self.model.model.visual, normalisation, self.device, divided)
