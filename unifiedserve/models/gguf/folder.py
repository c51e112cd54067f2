"""Make the model folder that stands for a GGUF file.

It has config and tokenizer as transformers reads them, and its tensors' places. It is made once and kept in the user's
cache, under the file's path, size and time.
"""

import hashlib
import json
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import GGUF_TABLE
from unifiedserve.models.gguf.file import PLAIN, GGUFFile
from unifiedserve.models.gguf.table import Table, write_table
from unifiedserve.models.hub import load_transformers

METHOD = "gguf"
#: of vocabularies whose numbers are cut into digits, of which transformers does not know
_SINGLE_DIGITS = ("smollm",)
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
#: of Llama 3.1 and its successors, beside the factor
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_FREQUENCIES = "rope_freqs.weight"


def gguf_folder(path: Path, cache: Path) -> Path:
    """Return the model folder of a GGUF file, below `cache`; takes seconds the first time.

    Raises ConfigError for a file that cannot be served, and if the folder cannot be written.
    """
    path = path.expanduser().absolute()
    try:
        folder = cache / _key(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if (folder / GGUF_TABLE).exists():
        return folder
    file = GGUFFile(path)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as made:
            own = Path(made, "model")
            own.mkdir()
            _write(file, own)
            _put(own, folder)
    except OSError as error:
        raise ConfigError(f"{cache}: what is read of {path.name} cannot be kept here: {error}") from error
    return folder


def _key(path: Path) -> str:
    status = path.stat()
    parts = str(path), status.st_size, status.st_mtime_ns, version("transformers"), version("unifiedserve")
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _put(made: Path, folder: Path) -> None:
    """Move a folder to its place, if another process has not been there first."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / GGUF_TABLE).exists():
            raise


def _write(file: GGUFFile, folder: Path) -> None:
    place, name = file.path.parent, file.path.name
    library = load_transformers()
    try:
        config = library.AutoConfig.from_pretrained(place, gguf_file=name)
        tokenizer = library.AutoTokenizer.from_pretrained(place, gguf_file=name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{file.path}: transformers does not understand its metadata: {reason}") from error
    _complete(config, file)
    if file.field("tokenizer.ggml.pre") in _SINGLE_DIGITS:
        splits = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(splits)
    tokenizer.save_pretrained(folder)
    _write_json(folder / "config.json", config.to_dict() | _quantization(file))
    ends = [file.field(f"tokenizer.ggml.{key}") for key in _ENDS]
    _write_json(folder / "generation_config.json", {"eos_token_id": sorted({end for end in ends if end is not None})})
    write_table(folder, Table(str(file.path), file.architecture, list(file.tensors)))


def _quantization(file: GGUFFile) -> dict[str, Any]:
    """Return what config.json says of quantised tensors' types, and how many have each. Nothing if none are."""
    kinds = Counter(place.kind for place in file.tensors if place.kind not in PLAIN)
    return {"quantization_config": {"quant_method": METHOD, "types": dict(sorted(kinds.items()))}} if kinds else {}


def _complete(config: Any, file: GGUFFile) -> None:
    """Add what transformers leaves out of a config: the size of heads, and how positions are scaled."""
    if head_dim := file.own_field("attention.key_length"):
        config.head_dim = head_dim
    kind = file.own_field("rope.scaling.type")
    if kind not in (None, "none"):
        raise ConfigError(f"{file.path}: positions that are scaled by {kind!r} are not supported")
    factors = file.values(_FREQUENCIES)
    if factors is not None:
        config.rope_parameters = config.rope_parameters | _llama3(factors.max())
        _check_frequencies(config, torch.tensor(factors), file.path)


def _llama3(factor: float) -> dict[str, Any]:
    return {"rope_type": "llama3", "factor": float(factor), **_LLAMA3}


def _check_frequencies(config: Any, factors: torch.Tensor, path: Path) -> None:
    """Raise ConfigError if the file's frequencies are divided by others than Llama 3's factors."""
    rules = load_transformers().modeling_rope_utils.ROPE_INIT_FUNCTIONS
    scaled, _ = rules["llama3"](config, torch.device("cpu"))
    plain = config.rope_parameters["rope_theta"] ** (torch.arange(len(scaled)) / -len(scaled))
    if len(factors) != len(scaled) or not torch.allclose(plain / scaled, factors, rtol=1e-3):
        raise ConfigError(f"{path}: its {_FREQUENCIES} are not those of Llama 3, which alone are supported")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
