"""Read towers of InternVL 2.5 and 3."""

from collections.abc import Mapping
from typing import Any, ClassVar

from unifiedserve.models.gguf.file import GGUFFile
from unifiedserve.models.gguf.towers.base import TokenId, Tower, vision_sizes

_PROJECTOR = {"layer_norm": "mlp1.0", "linear_1": "mlp1.1", "linear_2": "mlp1.3"}
_MOST_TILES = 12  # of published checkpoints


class InternVL(Tower):
    projector = "internvl"
    architectures = frozenset({"llama", "qwen2", "qwen3"})
    tokens: ClassVar[Mapping[str, str]] = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }

    def config(self, text: Mapping[str, Any], file: GGUFFile, token_id: TokenId) -> Mapping[str, Any]:
        sizes, fewer = vision_sizes(file), file.needed("vision.projector.scale_factor")
        for name in ("image_size", "patch_size"):
            sizes[name] = [sizes[name]] * 2
        sizes |= {
            "attention_bias": file.shape("v.blk.0.attn_q.bias") is not None,
            "use_qk_norm": file.shape("v.blk.0.attn_q_norm.weight") is not None,
            "norm_type": "layer_norm" if file.shape("v.blk.0.ln1.bias") else "rms_norm",
        }
        side = sizes["image_size"][0] // sizes["patch_size"][0] // fewer
        return {
            "model_type": "internvl",
            "image_token_id": token_id("<IMG_CONTEXT>"),
            "image_seq_length": side**2,
            "downsample_ratio": 1 / fewer,
            "vision_config": sizes,
        }

    def processor(self, file: GGUFFile) -> Mapping[str, Any]:
        side = file.needed("vision.image_size")
        return {
            "image_processor_type": "GotOcr2ImageProcessor",
            "size": {"height": side, "width": side},
            "crop_to_patches": True,
            "min_patches": file.own_field("vision.preproc_min_tiles") or 1,
            "max_patches": file.own_field("vision.preproc_max_tiles") or _MOST_TILES,
        }

    def hub_name(self, name: str) -> str:
        if name.startswith("vision_tower."):
            bare = "lambda_" in name or name.endswith("position_embeddings")
            return f"model.{name}.weight" if bare else f"model.{name}"
        _, layer, kind = name.split(".")
        return f"{_PROJECTOR[layer]}.{kind}"
