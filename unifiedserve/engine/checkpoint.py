"""Open the checkpoint that an engine is to serve."""

from pathlib import Path
from typing import NamedTuple

from unifiedserve.config import EngineConfig
from unifiedserve.config.checkpoint import CheckpointOptions
from unifiedserve.engine.zygote import shared_zygote
from unifiedserve.errors import ConfigError
from unifiedserve.heap import without_collections
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.default import DEFAULT_CHECKPOINT
from unifiedserve.models.hub import resolve_model
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import load_processor
from unifiedserve.models.sampling_defaults import sampling_defaults
from unifiedserve.observe.start import begin_step
from unifiedserve.user_cache import cache_folder


class Checkpoint(NamedTuple):
    """Hold a checkpoint's directory, its prompt and media side, and its sampling defaults."""

    folder: Path
    processor: Processor
    sampling: SamplingParams


def load_checkpoint(config: EngineConfig) -> Checkpoint:
    """Open the checkpoint. Raises ConfigError; may take seconds."""
    zygote, options = shared_zygote(), config.checkpoint  # it imports while this process loads
    begin_step(f"finding the checkpoint of {options.model}" if options.model else "reading the bundled model")
    model_dir = _model_dir(options)
    zygote.preload(model_dir, options.dtype)
    with without_collections():
        sampling = sampling_defaults(model_dir, options)
        return Checkpoint(model_dir, load_processor(model_dir, _chat_template(options.chat_template)), sampling)


def _model_dir(options: CheckpointOptions) -> Path:
    if options.model.endswith(".gguf"):
        from unifiedserve.models.gguf.folder import gguf_folder  # what reads such files is needed by nobody else

        return gguf_folder(Path(options.model), cache_folder() / "gguf", options.mmproj)
    if options.mmproj:
        raise ConfigError("--mmproj is of .gguf models: the other checkpoints' vision towers are among their files")
    if not options.model:
        return DEFAULT_CHECKPOINT
    return resolve_model(options.model, weights=options.load_format != "dummy")


def _chat_template(path: str) -> str | None:
    """Return the template that replaces the checkpoint's; None for no path."""
    if not path:
        return None
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--chat-template {path}: {error}") from error
