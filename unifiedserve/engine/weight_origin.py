"""Tell what an engine's weights are made from."""

from collections.abc import Collection
from pathlib import Path

from unifiedserve.config import EngineConfig
from unifiedserve.memory.checkpoint import GGUF_TABLE, weight_files
from unifiedserve.memory.kept_weights import Origin
from unifiedserve.placement import Network


def origin_of(config: EngineConfig, model_dir: Path, dtype: str, rank: int, networks: Collection[Network]) -> Origin:
    """Return what a rank's weights of these networks are made from. Raises ConfigError if the files are not there."""
    table = model_dir / GGUF_TABLE  # it is of a file's path, size and time
    files = [table] if table.exists() else weight_files(model_dir)
    if config.checkpoint.importance:
        files.append(Path(config.checkpoint.importance))
    codes = f"{config.checkpoint.quantization} {config.checkpoint.vision_quantization}"
    ranks = f"{config.machine.tensor_parallel_size} {config.machine.encoder_ranks}"
    how = f"{dtype} {codes} {rank} of {ranks} {' '.join(sorted(networks))}"
    return Origin([path.absolute() for path in (model_dir / "config.json", *files)], how)
