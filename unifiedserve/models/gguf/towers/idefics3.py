"""Read towers of Idefics3 and SmolVLM. Files do not tell them apart, so each takes videos, too, as SmolVLM2 does."""

from collections.abc import Mapping
from typing import Any

from unifiedserve.models.gguf.file import GGUFFile
from unifiedserve.models.gguf.towers.base import TokenId, Tower, vision_sizes


class Idefics3(Tower):
    projector = "idefics3"
    architectures = frozenset({"llama"})

    def config(self, text: Mapping[str, Any], file: GGUFFile, token_id: TokenId) -> Mapping[str, Any]:
        return {
            "model_type": "smolvlm",
            "image_token_id": token_id("<image>"),
            "scale_factor": file.needed("vision.projector.scale_factor"),
            "vision_config": vision_sizes(file),
        }

    def processor(self, file: GGUFFile) -> Mapping[str, Any]:
        tile = file.needed("vision.image_size")
        return {
            "image_processor_type": "SmolVLMImageProcessor",
            "size": {"longest_edge": file.own_field("vision.preproc_image_size") or 4 * tile},
            "max_image_size": {"longest_edge": tile},
            "do_image_splitting": True,
            "resample": 1,
        }

    def hub_name(self, name: str) -> str:
        return name
