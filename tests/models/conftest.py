"""A tiny checkpoint, our model side of it, and transformers' as the reference."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import reference
import torch
from hypothesis import settings
from model_loop import make_adapter
from reference import Reference

from ipc_buffers import ArenaError, Memory
from unifiedserve import _core
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import load_processor
from unifiedserve.models.tiny import make_checkpoint

settings.register_profile("models")
settings.load_profile("models")


@pytest.fixture(params=_core.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """One that this machine has, in use."""
    before = _core.instruction_set()
    _core.select_instruction_set(request.param)
    yield request.param
    _core.select_instruction_set(before)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def ours(checkpoint: Path) -> Processor:
    return load_processor(checkpoint)


@pytest.fixture(scope="session")
def adapter(checkpoint: Path) -> LanguageAdapter:
    return make_adapter(checkpoint, torch.float32)


@pytest.fixture(scope="session")
def hf(checkpoint: Path) -> Reference:
    return reference.load(checkpoint)


@pytest.fixture
def arena_name() -> Iterator[str]:
    name = f"test-models-{uuid.uuid4().hex[:12]}"
    yield name
    with contextlib.suppress(ArenaError):
        Memory.attach(name).unlink()
