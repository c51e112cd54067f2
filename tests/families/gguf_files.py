"""GGUF files of checkpoints, written by the package `gguf` as llama.cpp's converter writes them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

KindOf = Callable[[str], Kind]
_GAMMA = ("gemma3",)  # norms' weights are stored plus 1
_CONTROL, _NORMAL = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL


def stored(values: NDArray[np.float32], kind: Kind, seed: int = 0) -> NDArray[Any]:
    """Return rows as they are stored: in Q4_K and Q6_K, which the package cannot write, of codes at random."""
    if kind in (Kind.Q4_K, Kind.Q6_K, Kind.Q5_K, Kind.Q3_K, Kind.Q2_K):
        return random_blocks(kind, values.shape, seed)
    if kind in (Kind.F32, Kind.F16):
        return values.astype(np.float32 if kind == Kind.F32 else np.float16)
    return gguf.quantize(values, kind)


def random_blocks(kind: Kind, shape: tuple[int, ...], seed: int) -> NDArray[np.uint8]:
    """Return blocks of any codes whose scales are such that values are about as large as a trained matrix's."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(seed).integers(0, 256, (shape[0] * shape[1] // values, size), dtype=np.uint8)
    halves = {Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,), Kind.Q3_K: (108,), Kind.Q2_K: (80, 82)}
    for place in halves[kind]:
        scale = np.array([3e-4 if kind != Kind.Q6_K else 3e-5], np.float16).view(np.uint8)
        blocks[:, place : place + 2] = scale
    return blocks.reshape(shape[0], -1)


def values_of(data: NDArray[Any], kind: Kind) -> NDArray[np.float32]:
    return data.astype(np.float32) if kind in (Kind.F32, Kind.F16) else gguf.dequantize(data, kind)


def write_gguf(
    path: Path,
    checkpoint: Path,
    kind_of: KindOf,
    more: Mapping[str, NDArray[np.float32]] | None = None,
    words: str = "gpt-2",
) -> Path:
    """Write a text checkpoint as a GGUF file whose matrices are of `kind_of` their names; all else is float32.

    The checkpoint's weights are replaced by the values that the file holds. `more` are tensors that only it has,
    `words` is the name of how text is cut into words.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    architecture = config["model_type"].removesuffix("_text")
    writer = gguf.GGUFWriter(path, architecture)
    _add_sizes(writer, config)
    _add_tokenizer(writer, checkpoint, words)
    for name, values in (more or {}).items():
        writer.add_tensor(name, values)
    (arch,) = (key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    weights = load_file(checkpoint / "model.safetensors")
    for seed, (name, tensor) in enumerate(weights.items()):
        kind = kind_of(name) if tensor.dim() == 2 else Kind.F32
        data = stored(tensor.float().numpy(), kind, seed)
        weights[name] = torch.from_numpy(values_of(data, kind).copy())
        if architecture in _GAMMA and name.endswith("norm.weight"):
            data = data + 1
        if architecture == "llama" and (heads := _heads(name, config)):
            data = data.reshape(heads, 2, len(data) // heads // 2, -1).swapaxes(1, 2).reshape(data.shape)
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), data, raw_dtype=kind)
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
    writer.add_rope_freq_base(ropes.get("full_attention", ropes)["rope_theta"])
    if window := config.get("sliding_window"):
        writer.add_sliding_window(window)


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Path, words: str) -> None:
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted((tokenizer["model"]["vocab"] | special).items(), key=lambda pair: pair[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words)
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([_CONTROL if token in special else _NORMAL for token, _ in tokens])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(special["<|im_end|>"])
    writer.add_pad_token_id(special["<|endoftext|>"])
    writer.add_chat_template((checkpoint / "chat_template.jinja").read_text())
