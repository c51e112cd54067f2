"""GGUF files of checkpoints, written by the package `gguf` as llama.cpp's converter writes them."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray
from reference import transformers
from safetensors.torch import load_file, save_file

KindOf = Callable[[str], Kind]
_QWEN_VL = {"qwen2_vl": "qwen2vl", "qwen2_5_vl": "qwen2vl", "qwen3_vl": "qwen3vl"}
#: before the names of a language model's tensors, where it is one of several networks
_WITHIN = re.compile(r"(model\.)?(language_model|text_model)\.(model\.)?")
_GAMMA = ("gemma3",)  # norms' weights are stored plus 1
#: of types that the package cannot write: where a block's scales of 16 bits are, and such that values are ordinary
_SCALES = {
    Kind.Q2_K: ((80, 82), 3e-3),
    Kind.Q3_K: ((108,), 1e-3),
    Kind.Q4_K: ((0, 2), 3e-4),
    Kind.Q5_K: ((0, 2), 1e-4),
    Kind.Q6_K: ((208,), 3e-5),
    Kind.IQ4_NL: ((0,), 1e-3),
    Kind.IQ4_XS: ((0,), 3e-5),
}
_CONTROL, _NORMAL = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL


def stored(values: NDArray[np.float32], kind: Kind, seed: int = 0) -> NDArray[Any]:
    """Return rows as they are stored; in types that the package cannot write, of codes at random."""
    if kind in _SCALES:
        return random_blocks(kind, values.shape, seed)
    if kind in (Kind.F32, Kind.F16):
        return values.astype(np.float32 if kind == Kind.F32 else np.float16)
    return gguf.quantize(values, kind)


def random_blocks(kind: Kind, shape: tuple[int, ...], seed: int) -> NDArray[np.uint8]:
    """Return blocks of any codes whose scales are such that values are about as large as a trained matrix's."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(seed).integers(0, 256, (shape[0] * shape[1] // values, size), dtype=np.uint8)
    places, scale = _SCALES[kind]
    for place in places:
        blocks[:, place : place + 2] = np.array([scale], np.float16).view(np.uint8)
    return blocks.reshape(shape[0], -1)


def values_of(data: NDArray[Any], kind: Kind) -> NDArray[np.float32]:
    return data.astype(np.float32) if kind in (Kind.F32, Kind.F16) else gguf.dequantize(data, kind)


def write_gguf(
    path: Path,
    checkpoint: Path,
    kind_of: KindOf,
    more: Mapping[str, NDArray[np.float32]] | None = None,
    words: str = "gpt-2",
    end: str = "<|im_end|>",
    begin: str = "",
) -> Path:
    """Write a checkpoint's language model as a GGUF file whose matrices are of `kind_of` their names.

    All else is float32. The checkpoint's weights are replaced by the values that the file holds, if these are others.
    `more` are tensors that only it has, `words` is the name of how text is cut into words, `end` the token that ends
    answers, `begin` the one that may begin texts.
    """
    whole = transformers.AutoConfig.from_pretrained(checkpoint)
    config = whole.get_text_config().to_dict()
    architecture = _QWEN_VL.get(whole.model_type) or config["model_type"].removesuffix("_text")
    writer = gguf.GGUFWriter(path, architecture)
    _add_sizes(writer, config)
    _add_tokenizer(writer, checkpoint, words, end, begin)
    for name, values in (more or {}).items():
        writer.add_tensor(name, values)
    (arch,) = (key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    before = load_file(checkpoint / "model.safetensors")
    weights = dict(before)
    for seed, (name, tensor) in enumerate(before.items()):
        own = _WITHIN.sub("model.", name, count=1).replace("model.lm_head", "lm_head")
        if not own.startswith(("model.layers.", "model.embed_tokens.", "model.norm.", "lm_head.")):
            continue
        kind = kind_of(name) if tensor.dim() == 2 else Kind.F32
        data = stored(tensor.float().numpy(), kind, seed)
        weights[name] = torch.from_numpy(values_of(data, kind).copy())
        if architecture in _GAMMA and name.endswith("norm.weight"):
            data = data + 1
        if architecture == "llama" and (heads := _heads(name, config)):
            data = data.reshape(heads, 2, len(data) // heads // 2, -1).swapaxes(1, 2).reshape(data.shape)
        writer.add_tensor(names.get_name(own, (".weight", ".bias")), data, raw_dtype=kind)
    if any(not torch.equal(weights[name].float(), value.float()) for name, value in before.items()):
        save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _heads(name: str, config: Mapping[str, Any]) -> int | None:
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    return heads.get(name.split(".")[-2])


def _add_sizes(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    ropes = config["rope_parameters"]
    rope = ropes.get("full_attention", ropes)
    writer.add_rope_freq_base(rope["rope_theta"])
    if sections := rope.get("mrope_section"):
        writer.add_rope_dimension_sections([*sections, 0])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if window := config.get("sliding_window"):
        writer.add_sliding_window(window)


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Path, words: str, end: str, begin: str) -> None:
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted((tokenizer["model"]["vocab"] | special).items(), key=lambda pair: pair[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words)
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([_CONTROL if token in special else _NORMAL for token, _ in tokens])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(special[end])
    if begin:
        writer.add_bos_token_id(special[begin])
    writer.add_pad_token_id(special["<|endoftext|>"])
    writer.add_chat_template((checkpoint / "chat_template.jinja").read_text())
