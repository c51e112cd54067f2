"""Does a checkpoint's processor of ours give the pixels and tokens that transformers' gives, or refuse it?"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from cases import pixels, user
from conformance_cases import rows
from model_loop import plans
from reference import Case, Reference, transformers

from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaKind, MediaOptions, MediaPlan
from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules
from unifiedserve.models.picture_adapter import channel_normalisation
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import load_processor

#: "wrong" is an answer about other pixels, "crashed" an error that tells nobody what to do
Outcome = Literal["same", "refused", "refused by both", "wrong", "crashed"]
ALLOWED: tuple[Outcome, ...] = ("same", "refused", "refused by both")
TOLERANCE = 1e-5  # of normalised pixels, which are a few units large
FPS = 8.0
IMAGES = ((150, 200), (97, 41), (56, 56))
VIDEO = (16, 90, 130)
ALL_FRAMES = MediaOptions(num_frames=-1)


class Verdict(NamedTuple):
    outcome: Outcome
    detail: str = ""

    @property
    def allowed(self) -> bool:
        return self.outcome in ALLOWED


def check(directory: Path, media: frozenset[str]) -> Verdict:
    """Load both sides and show both the same images and videos."""
    try:
        ours = load_processor(directory)
    except ConfigError as error:
        if "\n" in str(error) or "its files are not what" in str(error):
            return Verdict("crashed", str(error))
        return _refused(directory, media, str(error))
    except Exception as error:
        return Verdict("crashed", f"{type(error).__name__}: {error}")
    try:
        hf = Reference(transformers.AutoProcessor.from_pretrained(directory), None)
    except Exception as error:
        return Verdict("wrong", f"only transformers refuses: {_line(error)}")
    for case in _cases(media):
        verdict = _compare(ours, hf, case)
        if verdict.outcome != "same":
            return verdict
    return Verdict("same")


def _refused(directory: Path, media: frozenset[str], reason: str) -> Verdict:
    try:
        hf = Reference(transformers.AutoProcessor.from_pretrained(directory), None)
        for case in _cases(media):
            hf.inputs(case)
    except Exception:
        return Verdict("refused by both", reason)
    return Verdict("refused", reason)


def _cases(media: frozenset[str]) -> list[Case]:
    cases = [Case([user("image", "Well?")], [pixels(1, *size)]) for size in IMAGES]
    if "video" in media:
        case = Case([user("video", "Well?")], videos=[pixels(2, *VIDEO)], fps=FPS)
        cases.append(case)
    return cases


def _compare(ours: Processor, hf: Reference, case: Case) -> Verdict:
    """Compare one medium. Frames are chosen by the checkpoint's rules where transformers can choose them."""
    kind = "video" if case.videos else "image"
    options = None
    if case.videos:
        case, options = _sampled(hf, case)
    try:
        inputs = hf.inputs(case)
    except Exception as error:
        return Verdict("wrong", f"only transformers refuses {kind}s: {_line(error)}")
    try:
        (plan,) = plans(ours, case, options)
        token_ids = ours.prompt(case.messages, [plan]).token_ids
        found = _normalised(ours, plan, case)
    except Exception as error:
        return Verdict("crashed", f"{kind}: {type(error).__name__}: {_line(error)}")
    if token_ids != inputs["input_ids"][0].tolist():
        return Verdict("wrong", f"{kind}: {len(token_ids)} tokens instead of {inputs['input_ids'].shape[1]}")
    expected = theirs(inputs, plan)
    if found.shape != expected.shape:
        return Verdict("wrong", f"{kind}: {found.numel()} pixels instead of {expected.numel()}")
    off = float((found - expected).abs().max())
    limit = TOLERANCE * max(1.0, float(expected.abs().max()))
    return Verdict("same") if off <= limit else Verdict("wrong", f"{kind}: pixels off by {off:.3g}")


def _sampled(hf: Reference, case: Case) -> tuple[Case, MediaOptions | None]:
    """Return the case as transformers is to be given it, and the options with which ours takes the same frames."""
    processor = hf.processor.video_processor
    if getattr(processor, "num_frames", None) is None and getattr(processor, "fps", None) is None:
        if not hasattr(processor, "initial_shift"):
            return case, ALL_FRAMES
        count = {"num_frames": len(case.videos[0])}
        return replace(case, sampling={"do_sample_frames": True, **count}), MediaOptions(**count)
    return replace(case, sampling={"do_sample_frames": True}), MediaOptions()


def normalisation_for(ours: Any, kind: MediaKind) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation of a kind of media: one a channel, or one an element of a row."""
    rules = ours.image_rules if kind == "image" else ours.video_rules
    return rules.normalisation() if isinstance(rules, MediaRules) else channel_normalisation(rules)


def _normalised(ours: Processor, plan: MediaPlan, case: Case) -> torch.Tensor:
    """What the encoder gets of a medium, in its order."""
    frames = case.images[0][None] if plan.kind == "image" else case.videos[0]
    frames = frames[list(plan.frame_indices)] if plan.frame_indices else frames
    values = rows(plan, frames, ours.patch_row_bytes)
    mean, deviation = normalisation_for(ours, plan.kind)
    if mean.dim() == 1:
        return values.float().sub(mean).div(deviation).flatten()
    parts, left = [], values.flatten()
    for height, width in _picture_sizes(ours, plan):
        picture, left = left[: 3 * height * width], left[3 * height * width :]
        parts.append(picture.view(3, height, width).float().sub(mean).div(deviation).flatten())
    assert left.numel() == 0
    return torch.cat(parts)


def _picture_sizes(ours: Processor, plan: MediaPlan) -> list[tuple[int, int]]:
    if ours.config.model_type == "minicpmv4_6":
        from unifiedserve.models.families.minicpmv4_6 import part_sizes

        return part_sizes(plan) * plan.units
    side: int = ours.patch_row_bytes // 3
    return [(side, side)] * (plan.patches // side)


def theirs(inputs: Any, plan: MediaPlan) -> torch.Tensor:
    """What transformers made of the pixels of one medium, in the order of ours."""
    suffix = "_videos" if plan.kind == "video" and "pixel_values_videos" in inputs else ""
    values = inputs[f"pixel_values{suffix}"]
    if "target_sizes" + suffix in inputs:
        return _unpacked(values, inputs["target_sizes" + suffix])
    if "aspect_ratio_mask" in inputs:
        values = values[0, 0, : int(inputs["aspect_ratio_mask"].sum())]
    flat: torch.Tensor = values.float().flatten()
    return flat


def _unpacked(packed: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """The pictures [3, height, width] one after another, of MiniCPM-V's patches side by side."""
    side, left, parts = packed.shape[2], packed[0].float(), []
    for grid_rows, columns in sizes.tolist():
        part, left = left[..., : grid_rows * columns * side], left[..., grid_rows * columns * side :]
        parts.append(part.reshape(3, side, grid_rows, columns, side).permute(0, 2, 1, 3, 4).flatten())
    return torch.cat(parts)


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:150] if str(error).strip() else type(error).__name__
