"""Run the modules of the family in `qwen3_vl.py`."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from unifiedserve.models.families.qwen2_vl import Qwen2VLAdapter
from unifiedserve.models.processor_defaults import QWEN3_VIDEOS


class Qwen3VLAdapter(Qwen2VLAdapter):
    video_defaults: ClassVar[Mapping[str, Any]] = QWEN3_VIDEOS

    def layer_inputs(self, embeds: Tensor) -> dict[str, Any]:
        first, *levels = torch.split(embeds[None], self.config.text_config.hidden_size, dim=2)
        if not levels:
            return {"inputs_embeds": first}
        everywhere = torch.ones(first.shape[:2], dtype=torch.bool, device=first.device)
        return {
            "inputs_embeds": first,
            "visual_pos_masks": everywhere,
            "deepstack_visual_embeds": [level[0] for level in levels],
        }
