"""Read towers of Qwen3-VL: the outputs of some of their layers enter the language model, too."""

import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from unifiedserve.models.gguf.file import GGUFFile
from unifiedserve.models.gguf.towers.base import Source
from unifiedserve.models.gguf.towers.qwen2_vl import Qwen2VL

_MERGER = re.compile(r"model\.visual\.deepstack_merger_list\.(\d+)\.(?:linear_)?(.+)")
_STORED_MERGER = re.compile(r"v\.deepstack\.(\d+)\.")
#: the last merger's parts by the names of Qwen2-VL's
_LAST = {"merger.norm": "merger.ln_q", "merger.linear_fc1": "merger.mlp.0", "merger.linear_fc2": "merger.mlp.2"}


class Qwen3VL(Qwen2VL):
    projector = "qwen3vl_merger"
    architectures = frozenset({"qwen3vl"})
    model_type: ClassVar[str] = "qwen3_vl"
    size: ClassVar[Mapping[str, int]] = {"shortest_edge": 256 * 256, "longest_edge": 4096 * 4096}
    #: pixels of all frames together, in published checkpoints
    video_size: ClassVar[Mapping[str, int]] = {"shortest_edge": 64 * 64, "longest_edge": 6 * 2048 * 2048}

    def video_processor(self, file: GGUFFile) -> Mapping[str, Any]:
        return {"video_processor_type": "Qwen3VLVideoProcessor", "size": self.video_size, **self._patches(file)}

    def hub_name(self, name: str) -> str:
        name = name.removeprefix("model.")
        part = next((part for part in _LAST if part in name), None)
        return name.replace(part, _LAST[part]) if part else name

    def source(self, name: str, present: Collection[str]) -> Source:
        """Return what a tensor is made of. A file numbers mergers by their layer, a checkpoint one after the other."""
        if merger := _MERGER.match(name):
            layers = sorted({int(match[1]) for each in present if (match := _STORED_MERGER.match(each))})
            number = int(merger[1])
            layer = layers[number] if number < len(layers) else number
            return Source([f"v.deepstack.{layer}.{merger[2]}"])
        return super().source(name, present)

    def _own_sizes(self, text: Mapping[str, Any], file: GGUFFile) -> dict[str, Any]:
        layers = file.needed("vision.is_deepstack_layers")
        return {
            "hidden_size": file.needed("vision.embedding_length"),
            "intermediate_size": file.needed("vision.feed_forward_length"),
            "out_hidden_size": text["hidden_size"],
            "num_position_embeddings": (file.shape("v.position_embd.weight") or [0])[0],
            "deepstack_visual_indexes": [layer for layer, enters in enumerate(layers) if enters],
        }
