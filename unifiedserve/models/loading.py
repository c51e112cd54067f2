"""A transformers model over weights that are already in memory.

The modules are made on the meta device, then given the shared tensors as parameters; buffers that no checkpoint
holds (rotary frequencies) are computed as `from_pretrained` computes them.
"""

import importlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unifiedserve.attention import paged_attention
from unifiedserve.errors import ConfigError
from unifiedserve.memory.weights import EXPERT
from unifiedserve.models.fused_decoder import back_to_back
from unifiedserve.models.hub import transformers

ATTENTION = "paged"
#: buffers that old checkpoints hold and models compute themselves
_COMPUTED = (r"\.inv_freq$", r"\.position_ids$", r"\.num_batches_tracked$")


def build_model(config: Any, weights: Mapping[str, Tensor], dtype: torch.dtype, *, generates: bool = True) -> Any:
    """The generating model of `config`, whose parameters are `weights`, without a copy.

    If it `generates` nothing its head may be missing, and stays without values.
    Raises ConfigError listing tensors that are missing, unknown, or of another shape or dtype than the model's.
    """
    _register_attention()
    model = _empty_model(config, dtype)
    parts = {"text_config": ATTENTION, "vision_config": "sdpa"}
    model.set_attn_implementation(parts if is_multimodal(config) else ATTENTION)
    optional = set() if generates else _head_names(model)
    model.load_state_dict(_placed(model, weights, optional), strict=False, assign=True)
    model.requires_grad_(False)
    _compute_buffers(model)
    return model.eval()


def is_multimodal(config: Any) -> bool:
    return config is not config.get_text_config()


def _empty_model(config: Any, dtype: torch.dtype) -> Any:
    auto = transformers.AutoModelForImageTextToText if is_multimodal(config) else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        return auto.from_config(config, dtype=dtype)


def _renamed(model: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under the names of the installed transformers, by its own rules for older checkpoints."""
    conversion, loading = (
        importlib.import_module(f"transformers.{name}") for name in ("conversion_mapping", "core_model_loading")
    )
    transforms = conversion.get_model_conversion_mapping(model)
    renamings = [each for each in transforms if isinstance(each, loading.WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, loading.WeightConverter)]
    wanted = model.state_dict(keep_vars=True)
    renamed: dict[str, Tensor] = {}
    experts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        new, converter = loading.rename_source_key(name, renamings, converters, model.base_model_prefix, wanted)
        if converter is None:
            renamed[new] = tensor
        elif ".experts." in new and new in wanted:
            experts.setdefault(new, {})[name] = tensor
        elif name in wanted:
            renamed[name] = tensor
        else:
            raise ConfigError(f"the checkpoint's {name} must be converted first: save it again with transformers")
    return renamed | {name: _fused_experts(parts, wanted[name].shape) for name, parts in experts.items()}


def _fused_experts(parts: Mapping[str, Tensor], shape: torch.Size) -> Tensor:
    """All experts' matrices [experts, outputs, inputs] of a checkpoint that holds them one by one, or transposed.

    A view of them, as they lie in the arena (see memory/weights.py). What does not fit the shape is left as it is.
    """
    if len(parts) == 1:
        (tensor,) = parts.values()
        turned = tensor.mT if tensor.dim() == len(shape) else tensor
        return turned if tensor.shape != shape and turned.shape == shape else tensor
    joined = back_to_back([parts[name] for name in sorted(parts, key=_expert)])
    return joined.view(shape) if joined.numel() == shape.numel() else joined


def _expert(name: str) -> tuple[int, bool]:
    """An expert's number, and its gate before what it is multiplied with."""
    match = EXPERT.fullmatch(name)
    if match is None:
        raise ConfigError(f"the checkpoint's {name} must be converted first: save it again with transformers")
    return int(match[2]), match[3] == "up"


def _head_names(model: Any) -> set[str]:
    head = model.get_output_embeddings()
    return {f"{path}.weight" for path, module in model.named_modules() if module is head}


def _placed(model: Any, weights: Mapping[str, Tensor], optional: Collection[str]) -> dict[str, Tensor]:
    """The state of a model: all that it needs, nothing unknown, everything of the right shape and dtype.

    Those that are `optional` may be missing.
    """
    weights = _renamed(model, weights)
    wanted = model.state_dict(keep_vars=True)
    wanted = {name: tensor for name, tensor in wanted.items() if name in weights or name not in optional}
    tied = model.all_tied_weights_keys if getattr(model.config, "tie_word_embeddings", False) else {}
    sources = {name: name if name in weights else tied.get(name, name) for name in wanted}
    missing = [source for source in sources.values() if source not in weights]
    if missing:
        raise ConfigError(f"the checkpoint lacks {len(missing)} tensors of its model: {_some(missing)}")
    given = {name: weights[source] for name, source in sources.items()}
    extra = _extra(model, weights.keys() - set(sources.values()))
    if extra:
        raise ConfigError(
            f"the checkpoint holds {len(extra)} tensors that its config.json has no place for: {_some(extra)}"
        )
    wrong = [
        f"{name} is {_describe(tensor)} instead of {_describe(wanted[name])}"
        for name, tensor in given.items()
        if (tensor.shape, tensor.dtype) != (wanted[name].shape, wanted[name].dtype)
    ]
    if wrong:
        raise ConfigError(f"the checkpoint does not fit its config.json: {_some(wrong)}")
    return given


def _extra(model: Any, names: Collection[str]) -> list[str]:
    """Those that nothing explains: no tied copy, no computed buffer, nothing that transformers leaves out, too."""
    left_out = [
        *(model._keys_to_ignore_on_load_unexpected or ()),
        *_COMPUTED,
        *map(re.escape, model.all_tied_weights_keys),
    ]
    return sorted(name for name in names if not any(re.search(pattern, name) for pattern in left_out))


def _compute_buffers(model: Any) -> None:
    """Materialise the non-persistent buffers and fill them, and nothing else."""
    for parameter in model.parameters():
        parameter._is_hf_initialized = True  # transformers leaves such tensors alone
    for path, module in model.named_modules():
        names = [name for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta]
        for name in names:
            setattr(module, name, torch.empty_like(getattr(module, name), device="cpu"))
        if names:
            _part_of(model, path)._init_weights(module)


def _part_of(model: Any, path: str) -> Any:
    """The innermost model of transformers that a module belongs to: each initialises what is its own."""
    steps = path.split(".")
    owners = (model.get_submodule(".".join(steps[:end])) for end in range(len(steps), 0, -1))
    return next((owner for owner in owners if hasattr(owner, "_init_weights")), model)


def _register_attention() -> None:
    transformers.AttentionInterface.register(ATTENTION, _attention)
    transformers.AttentionMaskInterface.register(ATTENTION, _no_mask)


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, *, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' calling convention: q, k, v are [1, heads, T, head_dim], the result [1, T, heads, head_dim].

    Some models pass the layer's window, others leave it to the mask and only keep it in the module.
    """
    out = paged_attention(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        module.layer_idx,
        kwargs["kv_cache"],
        kwargs["ragged_batch"],
        scaling,
        kwargs.get("sliding_window") or getattr(module, "sliding_window", None) or None,
    )
    return out[None], None


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The ragged batch says what a token may see."""


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _some(items: Sequence[str], limit: int = 5) -> str:
    rest = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + rest
