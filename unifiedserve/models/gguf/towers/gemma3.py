"""Read towers of Gemma 3."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from unifiedserve.models.gguf.file import GGUFFile
from unifiedserve.models.gguf.towers.base import Source, TokenId, Tower, less_one, stored_name, vision_sizes

_POOLED = 4  # patches of a side that become one visual token


class Gemma3(Tower):
    projector = "gemma3"
    architectures = frozenset({"gemma3"})
    tokens: ClassVar[Mapping[str, str]] = {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    }

    def config(self, text: Mapping[str, Any], file: GGUFFile, token_id: TokenId) -> Mapping[str, Any]:
        sizes = vision_sizes(file)
        pooled = file.own_field("vision.projector.scale_factor") or _POOLED
        return {
            "model_type": "gemma3",
            "boi_token_index": token_id(self.tokens["boi_token"]),
            "eoi_token_index": token_id(self.tokens["eoi_token"]),
            "image_token_index": token_id(self.tokens["image_token"]),
            "mm_tokens_per_image": (sizes["image_size"] // sizes["patch_size"] // pooled) ** 2,
            "vision_config": {"model_type": "siglip_vision_model", "vision_use_head": False, **sizes},
        }

    def processor(self, file: GGUFFile) -> Mapping[str, Any]:
        side = file.needed("vision.image_size")
        return {
            "image_processor_type": "Gemma3ImageProcessor",
            "size": {"height": side, "width": side},
            "resample": 2,
        }

    def hub_name(self, name: str) -> str:
        return name.replace("vision_tower.", "vision_tower.vision_model.").replace("_weight", ".weight")

    def source(self, name: str, present: Collection[str]) -> Source:
        if name.endswith("soft_emb_norm.weight"):
            return Source([stored_name(name)], less_one)
        return super().source(name, present)
