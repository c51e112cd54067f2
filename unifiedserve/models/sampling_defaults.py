"""Find how tokens are chosen for requests that do not say it: what a checkpoint's authors recommend."""

from pathlib import Path
from typing import Any

import msgspec

from unifiedserve.config.checkpoint import CheckpointOptions
from unifiedserve.config.validation import field_and_reason
from unifiedserve.errors import NO_JSON, ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.messages.sampling_params import MinP, RepetitionPenalty, SamplingParams, Temperature, TopK, TopP

_FILE = "generation_config.json"
_OWN = ("none", "vllm")  # the server's own defaults, as vLLM names them, too


class _Recommended(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the fields of generation_config.json that are recommendations for chats. None: it does not say."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    repetition_penalty: RepetitionPenalty | None = None


def sampling_defaults(model_dir: Path, options: CheckpointOptions) -> SamplingParams:
    """Return the parameters of a request that names none, by the options and `model_dir`.

    Raises ConfigError for a file that is not there, and for values out of range.
    """
    where = options.generation_config
    recommended = _Recommended() if where in _OWN else _from_file(model_dir, where)
    given = _given(recommended) | _given(_from_option(options.override_generation_config))
    return SamplingParams(**given)


def _from_file(model_dir: Path, where: str) -> _Recommended:
    """Read the file of a folder; that of the checkpoint need not be there."""
    path = model_dir / _FILE if where == "auto" else Path(where).expanduser() / _FILE
    fields = read_json(path, {} if where == "auto" else None)
    return _checked(fields, f"{path}: ", "; --generation-config none leaves it out")


def _from_option(text: str) -> _Recommended:
    if not text:
        return _Recommended()
    option = "--override-generation-config"
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except NO_JSON as error:
        raise ConfigError(f"{option}: expected a JSON object like '{{\"temperature\": 0.7}}': {error}") from error
    known = _Recommended.__struct_fields__
    if unknown := sorted(fields.keys() - set(known)):
        raise ConfigError(f"{option}: {unknown[0]} is none of {', '.join(known)}")
    return _checked(fields, f"{option}: ", "")


def _checked(fields: dict[str, Any], begin: str, end: str) -> _Recommended:
    try:
        return msgspec.convert(fields, _Recommended)
    except msgspec.ValidationError as error:
        name, reason = field_and_reason(error)
        raise ConfigError(f"{begin}{name}: {reason}{end}") from error


def _given(recommended: _Recommended) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(recommended).items() if value is not None}
