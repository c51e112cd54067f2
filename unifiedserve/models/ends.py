"""Find the tokens that end an answer, by the rules of transformers' `generate`."""

from pathlib import Path

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.models.hub import load_transformers


def end_tokens(model_dir: Path) -> tuple[int, ...]:
    """Return the tokens that end an answer; none if the checkpoint names none.

    They are those of generation_config.json, or of config.json if there is no such file. Raises ConfigError for what
    are no tokens' numbers.
    """
    path = model_dir / "generation_config.json"
    if path.exists():
        ends = read_json(path).get("eos_token_id")
    else:
        path = model_dir / "config.json"
        ends = load_transformers().GenerationConfig.from_model_config(read_json(path)).eos_token_id
    tokens = ends if isinstance(ends, list) else [ends]
    if tokens == [None]:
        return ()
    if not all(isinstance(token, int) for token in tokens):
        raise ConfigError(f"{path}: eos_token_id {ends!r} must be a token's number, or a list of such")
    return tuple(tokens)
