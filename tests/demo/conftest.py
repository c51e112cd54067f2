"""The bundled model's files, with fresh weights."""

from pathlib import Path

import reference  # noqa: F401  # first: other tests need transformers with torchvision, and the engine hides it

# isort: split
import pytest
import torch
from tokenizers import Tokenizer

from unifiedserve.demo.training.checkpoint import bundled_config, make_model, write_description, write_weights

torch.set_num_threads(1)  # a small model gains nothing from more


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
