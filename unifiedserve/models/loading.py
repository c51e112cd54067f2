"""Build a transformers model over weights that are already in memory.

The modules are made on the meta device, then given the shared tensors as parameters; buffers that no checkpoint
holds (rotary frequencies) are computed as `from_pretrained` computes them.
"""

import importlib
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from unifiedserve.attention import AttentionRules
from unifiedserve.device import back_to_back
from unifiedserve.errors import ConfigError
from unifiedserve.memory.panels import StoredMatrix, gather_matrices, matrix_name, stored_dtype
from unifiedserve.memory.weights import EXPERT
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.late_patterns import compiling_late
from unifiedserve.models.layer_positions import tune_queries
from unifiedserve.models.matrices import put_matrix
from unifiedserve.models.networks import NetworkOf, networks_of_model
from unifiedserve.placement import Network
from unifiedserve.ranks.parts import Cut, EncoderPart, RankPart

Stored = Tensor | StoredMatrix

ATTENTION = "paged"
#: what modules may hand to their attention: what it reads, and what changes nothing outside of training
_KNOWN = frozenset({"attention_step", "sliding_window", "softcap", "s_aux"})
_KNOWN |= {"ragged_batch", "recurrent_states", "dropout", "position_ids", "use_cache", "is_causal"}
#: buffers that old checkpoints hold and models compute themselves
_COMPUTED = (r"\.inv_freq$", r"\.position_ids$", r"\.num_batches_tracked$")
#: functions that fill a tensor with random values
_DRAWS = frozenset({"normal_", "uniform_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_"})


def build_model(
    config: Any,
    weights: Mapping[str, Tensor],
    dtype: torch.dtype,
    device: torch.device,
    *,
    generates: bool = True,
    networks: Collection[Network] = tuple(Network),
    part: RankPart | None = None,
) -> Any:
    """Build the generating model of `config` with `weights` as its parameters. They are on `device`, and not copied.

    If it `generates` nothing its head may be missing, and stays without values. So does all but these `networks`.
    Of the language model it is no more than a rank's `part`, if there is one.
    Raises ConfigError listing tensors that are missing, unknown, or of another shape or dtype than the model's, and if
    `config` makes no model.
    """
    _register_attention()
    model = _rehearsed.take(config, dtype) or _empty_model(config, dtype)
    if part:
        _shrink(dict(model.get_decoder().named_modules()) | {"lm_head": model.get_output_embeddings()}, part.cut)
        _shrink(dict(model.named_modules()), part.encoder.cut)
    parts = {"text_config": ATTENTION, "vision_config": "sdpa"}
    model.set_attn_implementation(parts if is_multimodal(config) else ATTENTION)
    optional = set() if generates else _head_names(model)
    placed = _placed(model, gather_matrices(weights), optional, networks)
    wanted = model.state_dict(keep_vars=True)
    tensors = {name: tensor for name, tensor in placed.items() if isinstance(tensor, Tensor)}
    model.load_state_dict(tensors, strict=False, assign=True)
    model.requires_grad_(False)
    if part and not part.encoder.leads:
        _leave_out_biases(model, part.encoder)
    _compute_buffers(model, device)  # before modules are replaced, because what replaces them takes their buffers
    for name, stored in placed.items():
        if isinstance(stored, StoredMatrix):
            put_matrix(model, name, stored, wanted[name])
    _check_filled(model, optional, networks)
    return model.eval()


def empty_checkpoint(config: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return a checkpoint of `config` as meta tensors of `dtype`, by its own names, sorted.

    Tied tensors are there once.
    """
    loading = importlib.import_module("transformers.core_model_loading")
    model = _empty_model(config, dtype)
    tied = _tied_names(model)
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    return dict(sorted(loading.revert_weight_conversion(model, state).items()))


def pretrained(model_dir: Path, config: Any, dtype: torch.dtype) -> Any:
    """Load a checkpoint's generating model as transformers does. Raises ConfigError if it cannot."""
    try:
        return _auto_class(config).from_pretrained(model_dir, dtype=dtype).eval()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{model_dir}: transformers cannot load this checkpoint: {reason}") from error


def networks_of_checkpoint(config: Any) -> NetworkOf:
    """Return a function that tells to which network a tensor belongs. It knows names in a checkpoint and in memory.

    Raises ConfigError if `config` makes no model.
    """
    model = _empty_model(config, torch.float32)
    network_of, new_name = networks_of_model(model), _renaming(model)
    return lambda name: network_of(new_name(matrix_name(name))[0])


def _shrink(modules: Mapping[str, Any], cut_of: Callable[[str], Cut | None]) -> None:
    """Cut empty modules to a rank's part of each tensor."""
    for path, module in modules.items():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if cut := cut_of(f"{path}.{name}"):
                setattr(module, name, nn.Parameter(cut.of(parameter), requires_grad=False))
        if isinstance(module, nn.Linear):
            module.out_features, module.in_features = module.weight.shape
        elif isinstance(module, nn.Embedding):
            module.num_embeddings, module.padding_idx = len(module.weight), None


def _leave_out_biases(model: Any, encoder: EncoderPart) -> None:
    """Have a rank add no bias to sums that another rank adds it to."""
    for path, module in model.named_modules():
        if getattr(module, "bias", None) is not None and encoder.sums(f"{path}.bias"):
            module.bias = nn.Parameter(torch.zeros_like(module.bias), requires_grad=False)


def is_multimodal(config: Any) -> bool:
    return config is not config.get_text_config()


class _Rehearsed:
    """Keep a model without values for the first `build_model` of its kind.

    That may come in a process that is forked meanwhile.
    """

    def __init__(self) -> None:
        self._kept: tuple[Any, torch.dtype, Any] | None = None

    def make(self, config: Any, dtype: torch.dtype) -> Any:
        wanted = config.to_dict()  # the model changes its config
        model = _empty_model(config, dtype)
        self._kept = wanted, dtype, model
        return model

    def take(self, config: Any, dtype: torch.dtype) -> Any:
        """Return the model; None if it is another's, or none is left."""
        if self._kept is None or self._kept[:2] != (config.to_dict(), dtype):
            return None
        (*_, model), self._kept = self._kept, None
        return model


_rehearsed = _Rehearsed()


def rehearse_loading(config: Any, dtype: torch.dtype) -> None:
    """Import what `build_model` needs for `config`, and do what the first one need not repeat.

    Raises ConfigError if `config` makes no model.
    """
    _renaming(_rehearsed.make(config, dtype))


def _empty_model(config: Any, dtype: torch.dtype) -> Any:
    try:
        with torch.device("meta"), _WithoutReferences():
            model = _auto_class(config).from_config(config, dtype=dtype)
    except Exception as error:
        raise ConfigError(f"{config.name_or_path}/config.json: no model can be made of it: {error}") from error
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to("meta"))
    return model


class _WithoutReferences(TorchFunctionMode):
    """Let the meta device do without torch's reference functions, because they import sympy.

    Ranges, and what models compute from them, are made by the processor. Random values are not drawn.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.arange:
            return func(*args, **{"device": "cpu", **kwargs})
        if func is torch.randn:
            return torch.empty(*args, **kwargs)
        if getattr(func, "__name__", "") in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _auto_class(config: Any) -> Any:
    library = load_transformers()
    return library.AutoModelForImageTextToText if is_multimodal(config) else library.AutoModelForCausalLM


def _renamed(model: Any, weights: Mapping[str, Stored]) -> dict[str, Stored]:
    """Rename the tensors for the installed transformers, by its own rules for older checkpoints."""
    new_name, wanted = _renaming(model), model.state_dict(keep_vars=True)
    renamed: dict[str, Stored] = {}
    experts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        new, converter = new_name(name)
        if converter is None:
            renamed[new] = tensor
        elif ".experts." in new and new in wanted and isinstance(tensor, Tensor):
            experts.setdefault(new, {})[name] = tensor
        elif name in wanted:
            renamed[name] = tensor
        else:
            raise ConfigError(f"the checkpoint's {name} must be converted first: save it again with transformers")
    return renamed | {name: _fused_experts(parts, wanted[name].shape) for name, parts in experts.items()}


def _renaming(model: Any) -> Callable[[str], tuple[str, Any]]:
    """Return the rule from a checkpoint's name to the model's.

    A converter of the tensor comes along, if anything must.
    """
    conversion, loading = (
        importlib.import_module(f"transformers.{name}") for name in ("conversion_mapping", "core_model_loading")
    )
    with compiling_late(loading):
        transforms = conversion.get_model_conversion_mapping(model)
    renamings = [each for each in transforms if isinstance(each, loading.WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, loading.WeightConverter)]
    wanted = model.state_dict(keep_vars=True)
    return lambda name: loading.rename_source_key(name, renamings, converters, model.base_model_prefix, wanted)


def _fused_experts(parts: Mapping[str, Tensor], shape: torch.Size) -> Tensor:
    """Join the experts' matrices [experts, outputs, inputs] of a checkpoint.

    It holds them one by one, or transposed. The result is a view, as they lie in the arena (see memory/weights.py).
    Tensors that do not fit the shape are left as they are.
    """
    if len(parts) == 1:
        (tensor,) = parts.values()
        turned = tensor.mT if tensor.dim() == len(shape) else tensor
        return turned if tensor.shape != shape and turned.shape == shape else tensor
    joined = back_to_back([parts[name] for name in sorted(parts, key=_expert)])
    return joined.view(shape) if joined.numel() == shape.numel() else joined


def _expert(name: str) -> tuple[int, bool]:
    """Return a sort key: the expert's number, and its gate before what it is multiplied with."""
    match = EXPERT.fullmatch(name)
    if match is None:
        raise ConfigError(f"the checkpoint's {name} must be converted first: save it again with transformers")
    return int(match[2]), match[3] == "up"


def _head_names(model: Any) -> set[str]:
    head = model.get_output_embeddings()
    return {f"{path}.weight" for path, module in model.named_modules() if module is head}


def _placed(
    model: Any, weights: Mapping[str, Stored], optional: Collection[str], networks: Collection[Network]
) -> dict[str, Stored]:
    """Return the state of a model's networks: all that they need, nothing unknown, all of the right shape and dtype.

    `optional` tensors may be missing.
    """
    network_of = networks_of_model(model)
    weights = {name: each for name, each in _renamed(model, weights).items() if network_of(name) in networks}
    wanted = {name: each for name, each in model.state_dict(keep_vars=True).items() if network_of(name) in networks}
    wanted = {name: tensor for name, tensor in wanted.items() if name in weights or name not in optional}
    tied = _tied_names(model)
    sources = {name: name if name in weights else tied.get(name, name) for name in wanted}
    missing = [source for source in sources.values() if source not in weights]
    folder = model.config.name_or_path
    if missing:
        raise ConfigError(f"{folder}: the checkpoint lacks {len(missing)} tensors of its model: {_some(missing)}")
    given = {name: weights[source] for name, source in sources.items()}
    extra = _extra(model, {name: weights[name] for name in weights.keys() - set(sources.values())})
    if extra:
        raise ConfigError(
            f"{folder}: the checkpoint holds {len(extra)} tensors that its config.json has no place for: {_some(extra)}"
        )
    wrong = [
        f"{name} is {_describe(tensor)} instead of {_describe(wanted[name])}"
        for name, tensor in given.items()
        if not _fits(tensor, wanted[name])
    ]
    if wrong:
        raise ConfigError(f"{folder}: the checkpoint does not fit its config.json: {_some(wrong)}")
    return given


def _fits(tensor: Stored, wanted: Tensor) -> bool:
    if isinstance(tensor, Tensor):
        return (tensor.shape, tensor.dtype) == (wanted.shape, wanted.dtype)
    try:
        tensor.matrix(wanted.shape)
    except (TypeError, ValueError):
        return False
    own = tensor.panels.dtype
    return tensor.scales is not None or own == stored_dtype(own, wanted.dtype)


def _tied_names(model: Any) -> Mapping[str, str]:
    """Return the tensors that are the same as another, with the other's name."""
    tied: Mapping[str, str] = model.all_tied_weights_keys
    return tied if getattr(model.config, "tie_word_embeddings", False) else {}


def _extra(model: Any, unplaced: Mapping[str, Stored]) -> list[str]:
    """Return tensors without a reason: no tied copy, no computed buffer, nothing that transformers leaves out.

    Nor a bias of zeros, as files of quantised weights hold for layers whose model has none.
    """
    left_out = [
        *(model._keys_to_ignore_on_load_unexpected or ()),
        *_COMPUTED,
        *map(re.escape, model.all_tied_weights_keys),
    ]
    unknown = (name for name in unplaced if not any(re.search(pattern, name) for pattern in left_out))
    return sorted(name for name in unknown if not _adds_nothing(name, unplaced[name]))


def _adds_nothing(name: str, stored: Stored) -> bool:
    return name.endswith(".bias") and isinstance(stored, Tensor) and not stored.any()


def _compute_buffers(model: Any, device: torch.device) -> None:
    """Materialise the non-persistent buffers and fill them, and nothing else.

    They are computed by the processor, so that no bit of them depends on the device.
    """
    for parameter in model.parameters():
        parameter._is_hf_initialized = True  # transformers leaves such tensors alone
    for path, module in model.named_modules():
        names = [name for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta]
        for name in names:
            like = getattr(module, name)
            setattr(module, name, torch.empty(like.shape, dtype=like.dtype, device="cpu"))
        if names:
            _part_of(model, path)._init_weights(module)
        for name in names:
            setattr(module, name, getattr(module, name).to(device))


def _check_filled(model: Any, optional: Collection[str], networks: Collection[Network]) -> None:
    """Raise ConfigError if a tensor but an `optional` one has no values: it would add arbitrary values."""
    network_of = networks_of_model(model)
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    empty = [name for name, tensor in tensors if tensor.is_meta and network_of(name) in networks]
    if empty := [name for name in empty if name not in optional]:
        raise ConfigError(
            f"{model.config.name_or_path}: nothing fills {len(empty)} tensors of this model: {_some(empty)}"
        )


def _part_of(model: Any, path: str) -> Any:
    """Return the innermost transformers model that a module belongs to: each initialises what is its own."""
    steps = path.split(".")
    owners = (model.get_submodule(".".join(steps[:end])) for end in range(len(steps), 0, -1))
    return next((owner for owner in owners if hasattr(owner, "_init_weights")), model)


def _register_attention() -> None:
    library = load_transformers()
    library.AttentionInterface.register(ATTENTION, _attention)
    library.AttentionMaskInterface.register(ATTENTION, _no_mask)


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, *, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attend by transformers' convention: q, k, v [1, heads, T, head_dim], the result [1, T, heads, head_dim].

    Some models pass the layer's window, others leave it to the mask and only keep it in the module. Raises ConfigError
    for anything else that a model passes, because its answers would be wrong without.
    """
    if unknown := [name for name in kwargs.keys() - _KNOWN if kwargs[name] is not None]:
        raise ConfigError(
            f"the language model ({module.config.model_type}) has an attention with {', '.join(sorted(unknown))}, "
            "which is not supported"
        )
    if getattr(module, "tuned_queries", False):
        query = tune_queries(module, query, kwargs["ragged_batch"])
    out = kwargs["attention_step"].attend(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        module.layer_idx,
        scaling,
        AttentionRules(
            window=kwargs.get("sliding_window") or getattr(module, "sliding_window", None) or None,
            chunk=getattr(module, "attention_chunk", None),
            cap=kwargs.get("softcap"),
            sinks=kwargs.get("s_aux"),
        ),
    )
    return out[None], None


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """Make no mask: the ragged batch says what a token may see."""


def _describe(tensor: Stored) -> str:
    if isinstance(tensor, StoredMatrix):
        return f"{_describe(tensor.panels)} in panels"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _some(items: Sequence[str], limit: int = 5) -> str:
    rest = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + rest
