"""Checkpoints of every family, our side of each, and transformers' as the reference; one family at a time."""

from collections.abc import Iterator

import pytest
import reference
import torch
from builders import Loaded
from checkpoints import find_checkpoint
from every_family import FAMILIES
from hypothesis import settings
from model_loop import Loop, make_adapter

from unifiedserve.models.registry import load_processor

settings.register_profile("families")
settings.load_profile("families")


@pytest.fixture(scope="session", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    family = FAMILIES[request.param]
    checkpoint = find_checkpoint(tmp_path_factory, request.param)
    return Loaded(
        request.param,
        family.media,
        family.mixed,
        checkpoint,
        load_processor(checkpoint),
        make_adapter(checkpoint, torch.float32),
        reference.load(checkpoint),
    )


@pytest.fixture
def loop(loaded: Loaded) -> Iterator[Loop]:
    loop = Loop(loaded.adapter)
    yield loop
    loop.close()
