"""What every family must do: prompts, visual tokens and greedy float32 answers as transformers' own."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from builders import Loaded
from cases import pixels, user
from conformance_cases import CASES, TOKENS, cases, prepare, rows
from deferred import DeferredDevice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_loop import Loop, make_adapter, plans, prompt_logits
from PIL import Image
from reference import Case

from flashcodec import RGBLayout
from unifiedserve.config import EngineConfig
from unifiedserve.device import Device
from unifiedserve.device.cuda import CudaDevice
from unifiedserve.messages.sampling_params import MAX_LOGPROBS
from unifiedserve.messages.seen import pictures_of
from unifiedserve.placement import Instance

TOKENS_ON_GPU = 6
ROUNDINGS = 8


@pytest.fixture(scope="session")
def expected(loaded: Loaded) -> dict[str, list[int]]:
    return {name: loaded.hf.generate(case, TOKENS) for name, case in cases(loaded).items()}


def test_prompts_are_transformers(loaded: Loaded) -> None:
    for name, case in cases(loaded).items():
        prompt = loaded.ours.prompt(case.messages, plans(loaded.ours, case))
        assert prompt.token_ids == loaded.hf.inputs(case)["input_ids"][0].tolist(), name


CHUNKS = [pytest.param(5, marks=pytest.mark.long), pytest.param(100, marks=pytest.mark.long), 1 << 30]


@pytest.mark.parametrize("chunk", CHUNKS)  # `test_all_at_once` has one of 23, `test_any_mix` draws others
def test_answers_equal_generate(loaded: Loaded, loop: Loop, chunk: int, expected: dict[str, list[int]]) -> None:
    for name, case in cases(loaded).items():
        request = prepare(loaded, case)
        assert loop.generate([request], TOKENS, chunk, loaded.ours.eos_token_ids) == [expected[name]], name
        loop.preempt(request)


def test_all_at_once(loaded: Loaded, loop: Loop, expected: dict[str, list[int]]) -> None:
    requests = [prepare(loaded, case) for case in cases(loaded).values()]
    answers = loop.generate(requests, TOKENS, 23, loaded.ours.eos_token_ids)
    assert answers == list(expected.values())


@pytest.mark.parametrize("device", ["stand-in", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_gpu_gives_the_same_answers(device: str, loaded: Loaded, expected: dict[str, list[int]]) -> None:
    """By the GPU's path, which without a GPU runs on a device that computes late and mixes with no host tensor."""
    gpu: Device = DeferredDevice()
    if device == "cuda":
        gpu = CudaDevice(EngineConfig())
        gpu.sharing.enter(Instance("test", ()), 0)
    loop = Loop(make_adapter(loaded.checkpoint, torch.float32, gpu))
    try:
        chosen = list(cases(loaded))[-2:]  # whatever the family takes together
        requests = [prepare(loaded, CASES[name]) for name in chosen]
        answers = loop.generate(requests, TOKENS_ON_GPU, 23, loaded.ours.eos_token_ids)
        assert answers == [expected[name][:TOKENS_ON_GPU] for name in chosen]
    finally:
        loop.close()


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), chunk=st.integers(1, 120), preempted_at=st.integers(1, 30))
def test_any_mix(
    loaded: Loaded, loop: Loop, expected: dict[str, list[int]], data: st.DataObject, chunk: int, preempted_at: int
) -> None:
    """Whoever else is in the batch, however prompts are cut, and whichever request is computed again."""
    names = data.draw(st.lists(st.sampled_from(sorted(expected)), min_size=1, max_size=5))
    victim = data.draw(st.integers(0, len(names) - 1))
    requests = [prepare(loaded, CASES[name]) for name in names]

    def preempt(step: int) -> None:
        if step == preempted_at:
            loop.preempt(requests[victim])

    answers = loop.generate(requests, TOKENS, chunk, loaded.ours.eos_token_ids, preempt)
    for request in requests:
        loop.preempt(request)
    assert answers == [expected[name] for name in names]


def test_logprobs_are_transformers(loaded: Loaded) -> None:
    """Of the 20 likeliest tokens, which is all that can be asked for, after every token of a prompt.

    Measured against float64, from which transformers' float32 is as far away as ours. How far that is differs with each
    rounding, so on some processors one sample says too little.
    """
    exact_model = copy.deepcopy(loaded.hf.model).double()
    exact_model.set_experts_implementation("eager")  # the others know no float64
    for name, case in cases(loaded).items():
        inputs = loaded.hf.inputs(case)
        with torch.inference_mode():
            exact = exact_model(**{key: _doubled(value) for key, value in inputs.items()}).logits[0].log_softmax(-1)
        ours = prompt_logits(loaded.adapter, prepare(loaded, case)).log_softmax(-1)
        likeliest = exact.topk(MAX_LOGPROBS).indices
        ours_off = _off(ours, exact, likeliest)
        theirs_off = (_off(theirs, exact, likeliest) for theirs in _in_float32(loaded.hf.model, inputs))
        assert any(ours_off <= max(1e-4, 1.5 * off) for off in theirs_off), name


def _off(logprobs: torch.Tensor, exact: torch.Tensor, likeliest: torch.Tensor) -> float:
    return float((logprobs - exact).gather(1, likeliest).abs().max())


def _in_float32(model: Any, inputs: Any) -> Iterator[torch.Tensor]:
    """Yield transformers' log probabilities: its own, and those of weights whose last bits are rounded otherwise."""
    with torch.inference_mode():
        yield model(**inputs).logits[0].log_softmax(-1)
        for seed in range(ROUNDINGS):
            generator = torch.Generator().manual_seed(seed)
            other = copy.deepcopy(model)
            for weight in other.parameters():
                ways = torch.randint(-1, 2, weight.shape, generator=generator)
                moved = torch.nextafter(weight, ways * torch.inf)
                weight.copy_(torch.where(ways == 0, weight, moved))
            yield other(**inputs).logits[0].log_softmax(-1)


def _doubled(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def test_answers_depend_on_the_picture(loaded: Loaded, loop: Loop) -> None:
    """The suite would not notice an encoder that is not used if the checkpoint gave all pictures the same answer."""
    if "image" not in loaded.media:
        pytest.skip("a family without images")
    shown = [Case([user("image", "What is this?")], [pixels(seed, 150, 200)]) for seed in (1, 2)]
    requests = [prepare(loaded, case) for case in shown]
    first, second = loop.generate(requests, TOKENS, eos=loaded.ours.eos_token_ids)
    assert first != second


def test_frames_can_be_seen_in_what_the_encoder_reads(loaded: Loaded) -> None:
    for case in cases(loaded).values():
        images, videos = iter(case.images), iter(case.videos)
        for plan in plans(loaded.ours, case):
            sources = next(images)[None] if plan.kind == "image" else next(videos)
            groups = rows(plan, sources, loaded.ours.patch_row_bytes).numpy()
            groups = groups.reshape(plan.units // plan.units_per_group, -1)
            shown = [frame for group in groups for frame in plan.layout.frames_of(group)]
            if isinstance(plan.layout, RGBLayout) and (plan.layout.crop or plan.layout.square):
                assert {frame.shape for frame in shown} == {(loaded.ours.side, loaded.ours.side, 3)}
                continue
            for frame, source in zip(shown, sources, strict=False):
                resized = Image.fromarray(source).resize(frame.shape[1::-1], Image.Resampling.BICUBIC)
                assert np.abs(frame - np.asarray(resized, float)).mean() < 8


def test_the_pictures_that_are_told_of_hold_all_that_the_encoder_reads(loaded: Loaded) -> None:
    for case in cases(loaded).values():
        for plan in plans(loaded.ours, case):
            pixels = sum(picture.width * picture.height * picture.count for picture in pictures_of(plan.layout))
            rows = plan.units_per_group * plan.patches_per_unit
            assert 3 * pixels * plan.group_size == rows * loaded.ours.patch_row_bytes


def test_units_do_not_depend_on_each_other(loaded: Loaded) -> None:
    for case in cases(loaded).values():
        request = prepare(loaded, case)
        parts: list[Any] = []
        row = 0
        for plan in request.prompt.media:
            for unit in range(plan.units):
                rows = request.patches[row : row + plan.patches_per_unit]
                parts.append(loaded.adapter.visual_tokens(rows, [(plan, range(unit, unit + 1))]))
                assert len(parts[-1]) == plan.unit_tokens(unit)
                row += plan.patches_per_unit
        if parts:
            media = request.prompt.media
            whole = loaded.adapter.visual_tokens(request.patches, [(plan, range(plan.units)) for plan in media])
            assert len(whole) == sum(plan.tokens for plan in request.prompt.media)
            torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=5e-5)
