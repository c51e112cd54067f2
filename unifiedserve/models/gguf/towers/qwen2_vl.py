"""Read towers of Qwen2-VL and Qwen2.5-VL: fused queries, keys and values, and patches of two frames."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch

from unifiedserve.models.gguf.file import GGUFFile
from unifiedserve.models.gguf.towers.base import Source, TokenId, Tower, joined

_PATCH = "v.patch_embd.weight"
_FUSED = "attn_qkv"
_TOKENS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
#: of published checkpoints; files do not tell them
_MERGE, _FRAMES = 2, 2
_WINDOW, _TOKENS_PER_SECOND = 112, 2


class Qwen2VL(Tower):
    projector = "qwen2vl_merger"
    architectures = frozenset({"qwen2vl"})
    model_type: ClassVar[str] = "qwen2_vl"
    #: pixels of an image, in published checkpoints
    size: ClassVar[Mapping[str, int]] = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 16384}

    def config(self, text: Mapping[str, Any], file: GGUFFile, token_id: TokenId) -> Mapping[str, Any]:
        sizes = {
            "depth": file.needed("vision.block_count"),
            "num_heads": file.needed("vision.attention.head_count"),
            "patch_size": file.needed("vision.patch_size"),
            "spatial_merge_size": file.own_field("vision.spatial_merge_size") or _MERGE,
            "temporal_patch_size": _FRAMES,
        }
        return {
            "model_type": self.model_type,
            **{name: token_id(token) for name, token in _TOKENS.items()},
            "vision_config": sizes | self._own_sizes(text, file),
        }

    def processor(self, file: GGUFFile) -> Mapping[str, Any]:
        return {"image_processor_type": "Qwen2VLImageProcessor", "size": self.size, **self._patches(file)}

    def hub_name(self, name: str) -> str:
        return name

    def source(self, name: str, present: Collection[str]) -> Source:
        if name.endswith("patch_embed.proj.weight"):
            return Source([_PATCH, f"{_PATCH}.1"], lambda frames: torch.stack(list(frames), dim=2))
        own = super().source(name, present)
        (stored,) = own.names
        if _FUSED in stored and stored not in present:
            return Source([stored.replace(_FUSED, f"attn_{part}") for part in "qkv"], joined)
        return own

    def _patches(self, file: GGUFFile) -> dict[str, int]:
        return {
            "patch_size": file.needed("vision.patch_size"),
            "merge_size": file.own_field("vision.spatial_merge_size") or _MERGE,
            "temporal_patch_size": _FRAMES,
        }

    def _own_sizes(self, text: Mapping[str, Any], file: GGUFFile) -> dict[str, Any]:
        width = file.needed("vision.embedding_length")
        inner = max(file.shape("v.blk.0.ffn_up.weight") or [4 * width])  # what the metadata say is another number
        return {"embed_dim": width, "hidden_size": text["hidden_size"], "mlp_ratio": inner // width}


class Qwen25VL(Qwen2VL):
    projector = "qwen2.5vl_merger"
    model_type: ClassVar[str] = "qwen2_5_vl"

    def _own_sizes(self, text: Mapping[str, Any], file: GGUFFile) -> dict[str, Any]:
        blocks, every = file.needed("vision.block_count"), file.needed("vision.n_wa_pattern")
        whole = range(every - 1, blocks, every) if every > 0 else range(blocks)  # 0: no block has windows
        return {
            "hidden_size": file.needed("vision.embedding_length"),
            "intermediate_size": file.needed("vision.feed_forward_length"),
            "out_hidden_size": text["hidden_size"],
            "fullatt_block_indexes": list(whole),
            "window_size": file.own_field("vision.window_size") or _WINDOW,
            "tokens_per_second": _TOKENS_PER_SECOND,
        }
