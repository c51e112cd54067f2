"""The bundled model's files, with fresh weights."""

from pathlib import Path

import reference  # noqa: F401  # first: other tests need transformers with torchvision, and the engine hides it

# isort: split
import pytest
from tokenizers import Tokenizer

from training.recipe.checkpoint import bundled_config, make_model, write_description, write_weights


@pytest.fixture(scope="session")
def description(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint's files, with fresh weights."""
    directory = tmp_path_factory.mktemp("world")
    tokenizer = write_description(directory)
    write_weights(directory, make_model(bundled_config(tokenizer), seed=0))
    return directory


@pytest.fixture(scope="session")
def tokenizer(description: Path) -> Tokenizer:
    return Tokenizer.from_file(str(description / "tokenizer.json"))
