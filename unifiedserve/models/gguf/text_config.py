"""Read the config of a GGUF file's language model, with all that transformers leaves out."""

from typing import Any

import torch

from unifiedserve.errors import ConfigError
from unifiedserve.models.gguf.file import GGUFFile
from unifiedserve.models.hub import load_transformers

#: as a file's `general.architecture` names them
ARCHITECTURES = frozenset({"gemma3", "llama", "qwen2", "qwen2vl", "qwen3", "qwen3vl"})
#: those that transformers does not know; their positions are of times, rows and columns
_WITH_VIDEOS = ("qwen2vl", "qwen3vl")
COMPUTED = ("rope_freqs.weight",)  # tensors that the config tells of
#: of Llama 3.1 and its successors, beside the factor
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_GEMMA3_27B_LAYERS = 62


def text_config(file: GGUFFile) -> dict[str, Any]:
    """Return a language model's config. Raises ConfigError for what is not supported or missing."""
    if file.architecture in _WITH_VIDEOS:
        _require_plain_positions(file)
        return _qwen_vl(file)
    try:
        config = load_transformers().AutoConfig.from_pretrained(file.path.parent, gguf_file=file.path.name)
    except Exception as error:
        raise not_understood(file, error) from error
    _complete(config, file)
    made: dict[str, Any] = config.to_dict()
    return made


def not_understood(file: GGUFFile, error: Exception) -> ConfigError:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return ConfigError(f"{file.path}: transformers does not understand its metadata: {reason}")


def _qwen_vl(file: GGUFFile) -> dict[str, Any]:
    positions = {
        "rope_type": "default",
        "rope_theta": file.needed("rope.freq_base"),
        "mrope_section": [section for section in file.needed("rope.dimension_sections") if section],
    }
    if file.architecture == "qwen3vl":
        own = {"head_dim": file.needed("attention.key_length")}
        positions["mrope_interleaved"] = True
    else:
        own = {"use_sliding_window": False}
    return {
        "hidden_size": file.needed("embedding_length"),
        "intermediate_size": file.needed("feed_forward_length"),
        "num_hidden_layers": file.needed("block_count"),
        "num_attention_heads": file.needed("attention.head_count"),
        "num_key_value_heads": file.needed("attention.head_count_kv"),
        "max_position_embeddings": file.needed("context_length"),
        "rms_norm_eps": file.needed("attention.layer_norm_rms_epsilon"),
        "rope_parameters": positions,
        "vocab_size": len(file.field("tokenizer.ggml.tokens")),
        "tie_word_embeddings": file.shape("output.weight") is None,
        "bos_token_id": file.field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.field("tokenizer.ggml.eos_token_id"),
        **own,
    }


def _complete(config: Any, file: GGUFFile) -> None:
    """Add what transformers leaves out of a config: the size of heads, and how positions and queries are scaled."""
    if head_dim := file.own_field("attention.key_length"):
        config.head_dim = head_dim
    if file.architecture == "gemma3":
        _complete_gemma3(config, file)
    else:
        _require_plain_positions(file)
    factors = file.values(COMPUTED[0])
    if factors is not None:
        config.rope_parameters = config.rope_parameters | _llama3(factors.max())
        _check_frequencies(config, torch.tensor(factors), file)


def _complete_gemma3(config: Any, file: GGUFFile) -> None:
    """Scale positions of layers without a window, and the largest model's queries, as llama.cpp does."""
    if file.own_field("rope.scaling.type") == "linear":
        scaled = {"rope_type": "linear", "factor": file.needed("rope.scaling.factor")}
        whole = config.rope_parameters["full_attention"] | scaled
        config.rope_parameters = config.rope_parameters | {"full_attention": whole}
    else:
        _require_plain_positions(file)
    if config.num_hidden_layers == _GEMMA3_27B_LAYERS:
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads


def _require_plain_positions(file: GGUFFile) -> None:
    kind = file.own_field("rope.scaling.type")
    if kind not in (None, "none"):
        raise ConfigError(f"{file.path}: positions that are scaled by {kind!r} are not supported")


def _llama3(factor: float) -> dict[str, Any]:
    return {"rope_type": "llama3", "factor": float(factor), **_LLAMA3}


def _check_frequencies(config: Any, factors: torch.Tensor, file: GGUFFile) -> None:
    """Raise ConfigError if the file's frequencies are divided by others than Llama 3's factors."""
    rules = load_transformers().modeling_rope_utils.ROPE_INIT_FUNCTIONS
    scaled, _ = rules["llama3"](config, torch.device("cpu"))
    plain = config.rope_parameters["rope_theta"] ** (torch.arange(len(scaled)) / -len(scaled))
    if len(factors) != len(scaled) or not torch.allclose(plain / scaled, factors, rtol=1e-3):
        raise ConfigError(f"{file.path}: its {COMPUTED[0]} are not those of Llama 3, which alone are supported")
