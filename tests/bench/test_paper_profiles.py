"""Profiles of the papers' hardware: each can be read, is what its shape gives, and names a source for each number."""

import msgspec
import pytest
import roofline

from unifiedserve.profiles import read_profile
from unifiedserve.scheduling.simulation import StageCosts

PATHS = sorted(roofline.FOLDER.glob("*.toml"))


def test_there_is_one_for_each_subject() -> None:
    assert {path.stem for path in PATHS} == set(roofline.SUBJECTS)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_profile_names_a_source_for_each_number(path: roofline.Path) -> None:
    profile = read_profile(path)
    neutral = msgspec.structs.asdict(StageCosts())
    given = {name for name, value in msgspec.structs.asdict(profile.costs).items() if value != neutral[name]}
    needed = {f"costs.{name}" for name in given} | {"device", "model_sizes"}
    assert needed | ({"interference"} if profile.interference else set()) == set(profile.sources)
    assert all(profile.sources.values())


@pytest.mark.parametrize("name", roofline.SUBJECTS)
def test_a_profile_is_what_its_shape_gives(name: str) -> None:
    assert read_profile(roofline.FOLDER / f"{name}.toml") == roofline.profile_of(roofline.SUBJECTS[name])


def test_a_pass_over_a_prompt_is_bound_by_operations_and_a_step_by_bytes() -> None:
    """A prompt token takes at least its operations at the peak, and a token of context at least its bytes."""
    for subject in roofline.SUBJECTS.values():
        costs = roofline.profile_of(subject).costs
        flops, bandwidth = subject.gpu.flops * subject.gpus, subject.gpu.bandwidth * subject.gpus
        assert costs.prompt_token > 2 * subject.language.weights / flops
        assert costs.context_token > subject.language.kv_token_bytes / bandwidth
