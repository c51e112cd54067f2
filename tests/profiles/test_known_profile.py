"""What a server begins with where `unifiedserve profile` has measured its model on its hardware."""

import datetime
from pathlib import Path

import pytest

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, open_device
from unifiedserve.engine.known_profile import digest_of, known_profile
from unifiedserve.models.default import DEFAULT_CHECKPOINT, DEFAULT_MODEL
from unifiedserve.profiles import (
    DeviceSize,
    HardwareProfile,
    hardware_name,
    keep_profile,
    steps_of,
    versions_here,
)
from unifiedserve.scheduling.profile import known_costs, profiled
from unifiedserve.scheduling.simulation import StageCosts
from unifiedserve.scheduling.state import Budget

CONFIG = EngineConfig()
COSTS = StageCosts(prefill_pass=0.01, prompt_token=0.001, encode_batch=0.02, visual_token=0.002, lone_step=0.005)


def measured(model_dir: Path, versions: dict[str, str]) -> HardwareProfile:
    return HardwareProfile(
        model=DEFAULT_MODEL,
        digest=digest_of(CONFIG, model_dir, "float32"),
        hardware=hardware_name(),
        versions=versions,
        date=datetime.date(2026, 11, 28),
        device=DeviceSize(kind="cpu", cores=2),
        costs=COSTS,
    )


def test_a_server_finds_the_profile_of_its_model_as_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model_dir, device = DEFAULT_CHECKPOINT, open_device(CPU.name, CONFIG)
    assert known_profile(CONFIG, model_dir, "float32", device) is None
    keep_profile(kept := measured(model_dir, versions_here()))
    assert known_profile(CONFIG, model_dir, "float32", device) == kept
    assert known_profile(CONFIG, model_dir, "bfloat16", device) is None
    keep_profile(measured(model_dir, {**versions_here(), "torch": "1.0"}))
    assert known_profile(CONFIG, model_dir, "float32", device) is None
    assert "torch 1.0, now" in caplog.text


def test_steps_cost_what_was_measured_until_they_have_been_taken() -> None:
    steps = known_costs(StageCosts(prompt_token=0.001, encode_batch=0.02, visual_token=0.002).steps())
    assert steps.passes.parts == pytest.approx((0.0, 0.001))
    assert steps.batches.parts == pytest.approx((0.02, 0.002))
    passes = steps.passes
    for tokens in [200, 400] * 50:
        passes = passes.after(tokens, 0.05 + 0.002 * tokens)
    assert passes.parts == pytest.approx((0.05, 0.002), rel=0.05)


@pytest.mark.parametrize(("threads", "tokens"), [(2, 490), (1, 240)])
def test_profiled_budgets_are_what_the_profile_says_of_these_cores(threads: int, tokens: int) -> None:
    profile = measured(DEFAULT_CHECKPOINT, {})
    found = profiled(Budget(512, 512, 32, 16, step_seconds=0.5), steps_of(profile, threads), 0.0).budget
    assert found.prefill_tokens == pytest.approx(tokens, rel=1 / 16)
    assert found.encode_tokens == pytest.approx(tokens / 2, rel=1 / 8)
