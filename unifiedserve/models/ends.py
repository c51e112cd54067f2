"""Find the tokens that end an answer, by the rules of transformers' `generate`."""

from pathlib import Path
from typing import Any

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.models.hub import load_transformers


def end_tokens(model_dir: Path, tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end an answer; none if the checkpoint names none.

    They are those of generation_config.json, or of config.json if there is no such file. Where these name none, which
    `generate` takes as it is, the tokenizer's ends answers: else each would be as long as it may be. Raises ConfigError
    for what are no tokens' numbers.
    """
    path = model_dir / "generation_config.json"
    if path.exists():
        ends = read_json(path).get("eos_token_id")
    else:
        path = model_dir / "config.json"
        ends = load_transformers().GenerationConfig.from_model_config(read_json(path)).eos_token_id
    tokens = ends if isinstance(ends, list) else [ends]
    if tokens == [None]:
        return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
    if not all(isinstance(token, int) for token in tokens):
        raise ConfigError(f"{path}: eos_token_id {ends!r} must be a token's number, or a list of such")
    return tuple(tokens)
