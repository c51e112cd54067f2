"""Write vision towers as GGUF files (mmproj), with the names of llama.cpp's converter."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf_files import stored, values_of
from safetensors.torch import load_file
from torch import Tensor

from unifiedserve.models.registry import load_config, load_processor

QWEN = [
    (r"visual\.blocks\.(\d+)\.attn\.(\w)\.", r"v.blk.\1.attn_\2."),
    (r"visual\.blocks\.(\d+)\.attn\.proj\.", r"v.blk.\1.attn_out."),
    (r"visual\.blocks\.(\d+)\.norm(\d)\.", r"v.blk.\1.ln\2."),
    (r"visual\.blocks\.(\d+)\.mlp\.(gate|up|down)_proj\.", r"v.blk.\1.ffn_\2."),
    (r"visual\.blocks\.(\d+)\.mlp\.fc1\.", r"v.blk.\1.ffn_up."),
    (r"visual\.blocks\.(\d+)\.mlp\.fc2\.", r"v.blk.\1.ffn_down."),
    (r"visual\.merger\.ln_q\.", "v.post_ln."),
    (r"visual\.merger\.mlp\.(\d)\.", r"mm.\1."),
]
QWEN3 = [
    (r"visual\.blocks\.(\d+)\.attn\.qkv\.", r"v.blk.\1.attn_qkv."),
    (r"visual\.blocks\.(\d+)\.mlp\.linear_fc1\.", r"v.blk.\1.ffn_up."),
    (r"visual\.blocks\.(\d+)\.mlp\.linear_fc2\.", r"v.blk.\1.ffn_down."),
    (r"visual\.merger\.norm\.", "v.post_ln."),
    (r"visual\.merger\.linear_fc1\.", "mm.0."),
    (r"visual\.merger\.linear_fc2\.", "mm.2."),
    (r"visual\.patch_embed\.proj\.bias", "v.patch_embd.bias"),
    (r"visual\.pos_embed\.", "v.position_embd."),
    *QWEN,
]
SIGLIP = [
    (r"\w+\.encoder\.layers\.(\d+)\.self_attn\.(\w)_proj\.", r"v.blk.\1.attn_\2."),
    (r"\w+\.encoder\.layers\.(\d+)\.self_attn\.out_proj\.", r"v.blk.\1.attn_out."),
    (r"\w+\.encoder\.layers\.(\d+)\.layer_norm(\d)\.", r"v.blk.\1.ln\2."),
    (r"\w+\.encoder\.layers\.(\d+)\.mlp\.fc1\.", r"v.blk.\1.ffn_up."),
    (r"\w+\.encoder\.layers\.(\d+)\.mlp\.fc2\.", r"v.blk.\1.ffn_down."),
    (r"\w+\.post_layernorm\.", "v.post_ln."),
    (r"\w+\.embeddings\.patch_embedding\.", "v.patch_embd."),
    (r"\w+\.embeddings\.position_embedding\.", "v.position_embd."),
    (r"connector\.modality_projection\.proj\.", "mm.model.fc."),
    (r"multi_modal_projector\.mm_input_projection_", "mm.input_projection."),
    (r"multi_modal_projector\.mm_soft_emb_norm\.", "mm.soft_emb_norm."),
]
INTERN = [
    (r"vision_tower\.encoder\.layer\.(\d+)\.attention\.(\w)_proj\.", r"v.blk.\1.attn_\2."),
    (r"vision_tower\.encoder\.layer\.(\d+)\.attention\.projection_layer\.", r"v.blk.\1.attn_out."),
    (r"vision_tower\.encoder\.layer\.(\d+)\.lambda_(\d)", r"v.blk.\1.ls\2.weight"),
    (r"vision_tower\.encoder\.layer\.(\d+)\.layernorm_before\.", r"v.blk.\1.ln1."),
    (r"vision_tower\.encoder\.layer\.(\d+)\.layernorm_after\.", r"v.blk.\1.ln2."),
    (r"vision_tower\.encoder\.layer\.(\d+)\.mlp\.fc1\.", r"v.blk.\1.ffn_up."),
    (r"vision_tower\.encoder\.layer\.(\d+)\.mlp\.fc2\.", r"v.blk.\1.ffn_down."),
    (r"vision_tower\.embeddings\.cls_token", "v.class_embd"),
    (r"vision_tower\.embeddings\.patch_embeddings\.projection\.", "v.patch_embd."),
    (r"vision_tower\.embeddings\.position_embeddings", "v.position_embd.weight"),
    (r"multi_modal_projector\.layer_norm\.", "mm.model.mlp.0."),
    (r"multi_modal_projector\.linear_1\.", "mm.model.mlp.1."),
    (r"multi_modal_projector\.linear_2\.", "mm.model.mlp.3."),
]
RULES = {
    "qwen2_vl": QWEN,
    "qwen2_5_vl": QWEN,
    "qwen3_vl": QWEN3,
    "smolvlm": SIGLIP,
    "gemma3": SIGLIP,
    "internvl": INTERN,
}
PROJECTORS = {
    "qwen2_vl": "qwen2vl_merger",
    "qwen2_5_vl": "qwen2.5vl_merger",
    "qwen3_vl": "qwen3vl_merger",
    "smolvlm": "idefics3",
    "gemma3": "gemma3",
    "internvl": "internvl",
}


def write_tower(
    path: Path,
    checkpoint: Path,
    kind: Kind = Kind.F32,
    *,
    old_names: bool = False,
    without: Collection[str] = (),
    **changed: Any,
) -> Mapping[str, Tensor]:
    """Write a checkpoint's tower with matrices of a type. Return its values by the checkpoint's names.

    With `old_names` an MLP's matrices have each other's. Tensors `without` which it is, and fields that are `changed`,
    are by the file's names, dots as `__`.
    """
    config = load_config(checkpoint)
    writer = gguf.GGUFWriter(path, "clip")
    for key, value in (_fields(config, checkpoint) | changed).items():
        _add(writer, f"clip.{key.replace('__', '.')}", value)
    values: dict[str, Tensor] = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        kept = []
        for stored_name, part in _parts(config, name, tensor.float()):
            if stored_name in without:
                continue
            own = kind if part.dim() == 2 and part.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 else Kind.F32
            data = stored(part.numpy(), own)
            kept.append(torch.from_numpy(np.array(values_of(data, own))))
            writer.add_tensor(_swapped(stored_name) if old_names else stored_name, data, raw_dtype=own)
        if kept:
            values[name] = _whole(name, kept, tensor.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def _fields(config: Any, checkpoint: Path) -> dict[str, Any]:
    vision, rules = config.vision_config, load_processor(checkpoint).image_rules
    sizes = {key: getattr(vision, key, None) for key in ("image_size", "patch_size", "intermediate_size")}
    sizes = {key: value[0] if isinstance(value, list | tuple) else value for key, value in sizes.items()}
    qwen2 = config.model_type == "qwen2_vl"
    fields = {
        "projector_type": PROJECTORS[config.model_type],
        "vision__projection_dim": config.get_text_config().hidden_size,
        "vision__image_size": sizes["image_size"] or 560,
        "vision__patch_size": sizes["patch_size"],
        "vision__embedding_length": vision.embed_dim if qwen2 else vision.hidden_size,
        "vision__feed_forward_length": vision.hidden_size if qwen2 else sizes["intermediate_size"],
        "vision__block_count": getattr(vision, "depth", None) or vision.num_hidden_layers,
        "vision__attention__head_count": getattr(vision, "num_heads", None) or vision.num_attention_heads,
        "vision__attention__layer_norm_epsilon": getattr(vision, "layer_norm_eps", 1e-6),
        "vision__image_mean": _channels(rules, "image_mean"),
        "vision__image_std": _channels(rules, "image_std"),
    }
    match config.model_type:
        case "qwen2_5_vl":
            fields["vision__n_wa_pattern"] = vision.fullatt_block_indexes[0] + 1
        case "qwen3_vl":
            entering = vision.deepstack_visual_indexes
            fields["vision__is_deepstack_layers"] = [layer in entering for layer in range(vision.depth)]
        case "smolvlm":
            fields["vision__projector__scale_factor"] = config.scale_factor
            fields["vision__preproc_image_size"] = rules["size"]["longest_edge"]
        case "internvl":
            fields["vision__projector__scale_factor"] = int(1 / config.downsample_ratio)
            fields["vision__preproc_max_tiles"] = rules["max_patches"]
        case "gemma3":
            side = sizes["image_size"] // sizes["patch_size"]
            fields["vision__projector__scale_factor"] = side // int(config.mm_tokens_per_image**0.5)
    return fields


def _channels(rules: Any, name: str) -> list[float]:
    return [float(value) for value in (getattr(rules, name, None) or rules[name])]


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


def _parts(config: Any, name: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
    """Return what a checkpoint's tensor becomes in the file; nothing of the language model's."""
    name = name.removeprefix("model.")
    if name == "visual.patch_embed.proj.weight":
        frames = [frame.contiguous() for frame in tensor.unbind(2)]
        return [("v.patch_embd.weight", frames[0]), ("v.patch_embd.weight.1", frames[1])]
    if merger := re.match(r"visual\.deepstack_merger_list\.(\d+)\.(?:linear_)?(.+)", name):
        layer = config.vision_config.deepstack_visual_indexes[int(merger[1])]
        return [(f"v.deepstack.{layer}.{merger[2]}", tensor)]
    if ".qkv." in name and config.model_type != "qwen3_vl":
        thirds = tensor.chunk(3)
        return [_parts(config, name.replace("qkv", one), part)[0] for one, part in zip("qkv", thirds, strict=True)]
    for pattern, replacement in RULES[config.model_type]:
        if re.match(pattern, name):
            value = tensor + 1 if "soft_emb_norm" in name else tensor
            return [(re.sub(pattern, replacement, name), value)]
    return []


def _whole(name: str, parts: list[Tensor], shape: torch.Size) -> Tensor:
    if name.endswith("patch_embed.proj.weight"):
        return torch.stack(parts, dim=2)
    whole = torch.cat(parts).view(shape)
    return whole - 1 if "soft_emb_norm" in name else whole


def _swapped(name: str) -> str:
    other = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    return re.sub("ffn_(up|down)", lambda match: other[match[0]], name)
