"""Choose the tensors of a checkpoint for each memory, and their form."""

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unifiedserve.config import EngineConfig
from unifiedserve.device import Device
from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import GGUF_TABLE, read_json
from unifiedserve.memory.cut_tensors import CutTensors
from unifiedserve.memory.panels import PanelTensors
from unifiedserve.memory.shared import EngineLayout
from unifiedserve.memory.tensors import Header, SafetensorsFiles, StoredWeights, Tensors, Weights
from unifiedserve.memory.weights import Wanted, all_tensors, weights_bytes
from unifiedserve.models.dummy import DummyTensors
from unifiedserve.models.loading import networks_of_checkpoint
from unifiedserve.models.matrices import (
    head_matrix,
    known_matrices,
    language_matrices,
    takes_even_rows,
    tower_block,
    tower_matrix,
)
from unifiedserve.placement import Network
from unifiedserve.quantization.on_the_fly import DEFAULTS, OF_EVEN_ROWS, OF_TOWERS, OnTheFly, SchemeOf
from unifiedserve.quantization.read import QuantizedTensors, quantization_config, require_plain
from unifiedserve.quantization.scheme import Scheme
from unifiedserve.ranks.parts import Cut, RankPart, parts_of

_log = logging.getLogger(__name__)
_BITS = {"int8": 8, "int4": 4}


def sources_of_ranks(
    config: EngineConfig, model_dir: Path, model_config: Any, device: Device, dtype: str
) -> list[Tensors]:
    """Return what `weight_source` does for each rank. Raises ConfigError as it does."""
    ranks = config.machine.tensor_parallel_size
    if ranks == 1:
        return [weight_source(config, model_dir, model_config, device, dtype)]
    parts = parts_of(model_config, ranks, config.machine.shared_encoder, apart=device.apart)
    return [weight_source(config, model_dir, model_config, device, dtype, part) for part in parts]


def weight_source(
    config: EngineConfig,
    model_dir: Path,
    model_config: Any,
    device: Device,
    dtype: str,
    part: RankPart | None = None,
) -> Tensors:
    """Return the tensors to store for the workers: on the processor, matrices in panels.

    They are what a rank has of them, if there is a `part`: the first ones have the encoder, too.
    Raises ConfigError for a quantised checkpoint that is not supported, or if one is to be quantised that is already,
    on a device that has no products of codes, or if the vision tower is to be quantised and is none of ours.
    """
    torch_dtype: torch.dtype = getattr(torch, dtype)
    narrow = torch_dtype == torch.float32
    in_panels = known_matrices(model_config, narrow=narrow) if device.panels(dtype) else _no_matrices
    raw, checkpoint = read_json(model_dir / "config.json"), config.checkpoint
    language, vision = checkpoint.quantization, checkpoint.vision_quantization
    if language != "none":
        require_plain(raw, f"--quantization {language}")
        _require_codes(device, dtype, f"--quantization {language}")
    if vision != "none":
        _require_codes(device, dtype, f"--vision-quantization {vision}")
    if config.checkpoint.load_format == "dummy":
        stored: StoredWeights = DummyTensors(model_config, torch_dtype)
    else:
        stored = _as_stored(model_dir, model_config, quantization_config(raw))
    if vision != "none":
        _require_tower(stored, f"--vision-quantization {vision}")
    tensors: Weights = _part_of(stored, part, model_config)
    if vision != "none":
        tensors = OnTheFly(tensors, partial(tower_scheme, _BITS[vision]))
    if language != "none":
        scheme_of = schemes(_BITS[language], model_config)
        tensors = OnTheFly(
            tensors, scheme_of, _importance(checkpoint.importance, stored, scheme_of, model_config, part)
        )
    return PanelTensors(tensors, torch_dtype, in_panels)


def tower_scheme(bits: int, name: str) -> Scheme | None:
    """Return how a vision tower's matrix of that name is quantised to so many bits; None for others."""
    if not tower_matrix(name):
        return None
    return (OF_EVEN_ROWS if takes_even_rows(name) else OF_TOWERS)[bits]


def _importance(
    path: str, stored: Weights, scheme_of: SchemeOf, model_config: Any, part: RankPart | None
) -> Mapping[str, Tensor]:
    """Return the importance of inputs of 4-bit matrices, or of their parts, by names.

    The log says of how many there is none. Raises ConfigError for what is not the model's importance matrix.
    """
    if not path:
        return {}
    from unifiedserve.models.gguf.importance import importance_of  # as above

    matrices = [each for each in OnTheFly(stored, scheme_of).headers() if each.scheme and each.scheme.bits == 4]
    found = importance_of(Path(path), matrices, model_config.get_text_config().num_hidden_layers)
    leads = part is None or part.rank == 0
    if leads and (missing := [each.name for each in matrices if each.name not in found]):
        _log.warning(
            "%s has nothing of %d of %d matrices (%s, …): all their inputs are alike",
            path, len(missing), len(matrices), missing[0],
        )  # fmt: skip
    return found if part is None else {name: _inputs(part.cut(name), each) for name, each in found.items()}


def _inputs(cut: Cut | None, importance: Tensor) -> Tensor:
    """Return what a part of a matrix has of the importance of its inputs."""
    return cut._replace(dim=0).of(importance) if cut and cut.dim else importance


def _require_codes(device: Device, dtype: str, option: str) -> None:
    if not device.panels(dtype):
        raise ConfigError(f"{option} computes with the CPU's kernels for now: leave it out, or give --device cpu")


def _require_tower(tensors: Weights, option: str) -> None:
    if not any(tower_block(header.name) for header in tensors.headers()):
        raise ConfigError(f"{option} is for the vision towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: leave it out")


def schemes(bits: int, model_config: Any) -> SchemeOf:
    """Return what a matrix is quantised to, by its name: the language model's to `bits`, its head to no less than 8."""
    wanted, head = language_matrices(model_config), head_matrix(model_config)
    return lambda name: DEFAULTS[8 if head(name) else bits] if wanted(name) else None


def wanted_by(networks: Collection[Network], model_config: Any) -> Wanted:
    """Return a function that tells by a tensor's name whether these networks need it."""
    if len(networks) == len(Network):
        return all_tensors
    network_of = networks_of_checkpoint(model_config)
    return lambda name: network_of(name) in networks


def bytes_by_memory(
    layout: EngineLayout, sources: Sequence[Tensors], model_config: Any, dtype: str
) -> dict[str, list[int]]:
    """Return the bytes of each rank's weights, by memory, from the headers alone."""
    own: torch.dtype = getattr(torch, dtype)
    kinds = {memory: (each.networks, len(each.weights_of_ranks)) for memory, each in layout.memories.items()}
    sizes = {
        (networks, ranks): [weights_bytes(source, own, wanted_by(networks, model_config)) for source in sources[:ranks]]
        for networks, ranks in set(kinds.values())
    }
    return {memory: sizes[kind] for memory, kind in kinds.items()}


def _as_stored(model_dir: Path, model_config: Any, quantized: Mapping[str, Any] | None) -> StoredWeights:
    if (model_dir / GGUF_TABLE).exists():
        from unifiedserve.models.gguf.tensors import GGUFTensors  # what reads them is needed by nobody else

        return GGUFTensors(model_dir, model_config)
    files = SafetensorsFiles(model_dir)
    return QuantizedTensors(files, quantized) if quantized else files


def _part_of(source: StoredWeights, part: RankPart | None, model_config: Any) -> Weights:
    if part is None:
        return source
    network_of = networks_of_checkpoint(model_config)

    def cut(name: str) -> Cut | None:
        return part.cut(name) if network_of(name) is Network.LANGUAGE else part.encoder.cut(name)

    return CutTensors(source, lambda name: part.encoder.stored or network_of(name) is Network.LANGUAGE, cut)


def _no_matrices(header: Header) -> bool:
    return False
