"""Make the model folder that stands for GGUF files.

It has config, tokenizer, media rules and the places of tensors. It is made once and kept in the user's cache, under the
files' paths, sizes and times.
"""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import GGUF_TABLE, read_json
from unifiedserve.models.gguf.file import PLAIN, GGUFFile, check_model
from unifiedserve.models.gguf.table import Table, write_table
from unifiedserve.models.gguf.text_config import ARCHITECTURES, not_understood, text_config
from unifiedserve.models.gguf.towers import NEED_ONE, projector_of, tower_of, tower_path
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.processor_rules import IMAGES, VIDEOS

METHOD = "gguf"
#: vocabularies by how they cut text into words. Of these transformers does not know that numbers are cut into digits,
_SINGLE_DIGITS = ("smollm",)
#: that a word which is a token needs no merges, and that texts begin with BOS unless a file says otherwise,
_LIKE_LLAMA_3 = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken")
#: and that letters are composed with their accents
_LIKE_QWEN_2 = ("qwen2", "deepseek-r1-qwen")
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
#: tokens that end an answer wherever a vocabulary has them, as in llama.cpp: most files name no more than one of a
#: model's, and Gemma 3's not that of a turn
_KNOWN_ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>"),
    *("<end_of_turn>", "<end_of_utterance>"),
)
#: recommendations of general.sampling, and what generation_config.json calls them
_SAMPLING = {
    "temp": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def gguf_folder(path: Path, cache: Path, mmproj: str = "") -> Path:
    """Return the model folder of a GGUF file and its vision tower's, below `cache`; takes seconds the first time.

    The tower's is `mmproj`, or the file beside the model's whose name says so. Raises ConfigError for files that
    cannot be served, and if the folder cannot be written.
    """
    path = path.expanduser().absolute()
    tower = tower_path(path, mmproj)
    paths = [path] if tower is None else [path, tower]
    folder = cache / _key(paths)
    if (folder / GGUF_TABLE).exists():
        return folder
    files = [GGUFFile(each) for each in paths]
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as made:
            own = Path(made, "model")
            own.mkdir()
            _write(own, *files)
            _put(own, folder)
    except OSError as error:
        raise ConfigError(f"{cache}: what is read of {path.name} cannot be kept here: {error}") from error
    return folder


def _key(paths: list[Path]) -> str:
    parts: list[Any] = [version("transformers"), version("unifiedserve")]
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        parts += [str(path), status.st_size, status.st_mtime_ns]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _put(made: Path, folder: Path) -> None:
    """Move a folder to its place, if another process has not been there first."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / GGUF_TABLE).exists():
            raise


def _write(folder: Path, file: GGUFFile, tower: GGUFFile | None = None) -> None:
    check_model(file, ARCHITECTURES)
    if tower is None and file.architecture in NEED_ONE:
        raise ConfigError(f"{file.path}: a {file.architecture} model needs its vision tower's file: give --mmproj")
    config = text_config(file)
    tokenizer = _tokenizer(file)
    tokenizer.save_pretrained(folder)
    if tower:
        config = _with_tower(folder, config, tokenizer, file, tower)
    _write_json(folder / "config.json", config | _quantization(file))
    _write_json(folder / "generation_config.json", _generation(file, tokenizer.get_vocab()))
    beside = Table(str(tower.path), projector_of(tower), list(tower.tensors)) if tower else None
    write_table(folder, Table(str(file.path), file.architecture, list(file.tensors), beside))


def _generation(file: GGUFFile, vocabulary: Mapping[str, int]) -> dict[str, Any]:
    """Return the tokens that end an answer, and how the file would have tokens chosen."""
    ends = [*(file.field(f"tokenizer.ggml.{key}") for key in _ENDS), *map(vocabulary.get, _KNOWN_ENDS)]
    chosen = {name: file.field(f"general.sampling.{key}") for key, name in _SAMPLING.items()}
    rounded = {name: round(value, 6) for name, value in chosen.items() if value is not None}  # of 32 bits
    return {"eos_token_id": sorted({end for end in ends if end is not None}), **rounded}


def _tokenizer(file: GGUFFile) -> Any:
    place, name, words = file.path.parent, file.path.name, file.field("tokenizer.ggml.pre")
    begins = {"add_bos_token": True} if words in _LIKE_LLAMA_3 else {}
    try:
        tokenizer = load_transformers().PreTrainedTokenizerFast.from_pretrained(place, gguf_file=name, **begins)
    except Exception as error:
        raise not_understood(file, error) from error
    backend = tokenizer.backend_tokenizer
    if words in _SINGLE_DIGITS:
        backend.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    if words in _LIKE_LLAMA_3:
        backend.model.ignore_merges = True
    if words in _LIKE_QWEN_2:
        backend.normalizer = NFC()
    return tokenizer


def _with_tower(folder: Path, text: dict[str, Any], tokenizer: Any, file: GGUFFile, tower: GGUFFile) -> dict[str, Any]:
    """Write the media rules, and name the tokenizer's special tokens; return the config of both networks."""
    known, vocabulary = tower_of(tower, file), tokenizer.get_vocab()

    def token_id(token: str) -> int:
        if token not in vocabulary:
            raise ConfigError(f"{file.path}: its vocabulary has no {token}, which this tower's models have")
        return int(vocabulary[token])

    fields = dict(known.config(text, tower, token_id))
    pixels = {"image_mean": tower.needed("vision.image_mean"), "image_std": tower.needed("vision.image_std")}
    _write_json(folder / IMAGES, {**known.processor(tower), **pixels})
    if videos := known.video_processor(tower):
        _write_json(folder / VIDEOS, {**videos, **pixels})
    names = folder / "tokenizer_config.json"
    _write_json(names, read_json(names) | dict(known.tokens))
    fields |= {"text_config": text, "tie_word_embeddings": text["tie_word_embeddings"]}
    try:
        config = load_transformers().AutoConfig.for_model(**fields)
    except Exception as error:
        raise not_understood(tower, error) from error
    made: dict[str, Any] = config.to_dict()
    return made


def _quantization(file: GGUFFile) -> dict[str, Any]:
    """Return what config.json says of quantised tensors' types, and how many have each. Nothing if none are."""
    kinds = Counter(place.kind for place in file.tensors if place.kind not in PLAIN)
    return {"quantization_config": {"quant_method": METHOD, "types": dict(sorted(kinds.items()))}} if kinds else {}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
