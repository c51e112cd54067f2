"""Compute the least that requests cost: seconds that one whole device computes for each stage of them."""

from collections.abc import Mapping

from unifiedserve.placement import Stage
from unifiedserve.planning.candidates import Candidate
from unifiedserve.profiles import HardwareProfile
from unifiedserve.scheduling.simulation import Arrival

Work = Mapping[Stage, float]


def prompt_tokens(arrival: Arrival, profile: HardwareProfile) -> int:
    """Return the tokens that are prefilled, and that the KV cache holds."""
    return sum(arrival.gaps) + (0 if profile.model_sizes.keeps_visual else sum(arrival.units))


def least_work(arrival: Arrival, profile: HardwareProfile, candidate: Candidate) -> dict[Stage, float]:
    """Return the device seconds of a request in each stage. Batches are as full as the candidate lets them be.

    Media are decoded on all cores of a CPU, or by all engines of a GPU.
    """
    costs, device = profile.costs, profile.device
    visual = sum(arrival.units)
    prompt = prompt_tokens(arrival, profile)
    chunk = candidate.prefill_chunk_tokens or max(prompt, 1)
    batch = candidate.encode_budget_tokens + max(arrival.units, default=0)
    return {
        Stage.VISION: _decoding(arrival, profile),
        Stage.ENCODE: visual * (costs.visual_token + costs.encode_batch / batch),
        Stage.PREFILL: prompt * (costs.prompt_token + costs.prefill_pass / chunk)
        + costs.prompt_context * prompt**2 / 2,
        Stage.DECODE: _least_decode(arrival.generate - 1, prompt, profile, candidate)
        * (_giving(profile) if device.kind == "cpu" else 1.0),
    }


def _decoding(arrival: Arrival, profile: HardwareProfile) -> float:
    """Return the seconds of all decoders of a device. A GPU's engines decode videos; the host does the images."""
    device, seconds = profile.device, len(arrival.units) * arrival.decode
    if device.kind == "cpu":
        return seconds / (device.cores or 1)
    return seconds / device.video_engines if arrival.gop and device.video_engines else 0.0


def _least_decode(steps: int, prompt: int, profile: HardwareProfile, candidate: Candidate) -> float:
    """Return the seconds of so many steps: the first token comes with the prompt.

    A pass over weights that prompts need, too, costs decode nothing.
    """
    costs = profile.costs
    context = steps * prompt + steps * (steps + 1) / 2
    alone = 0.0 if candidate.mixes_passes else costs.decode_pass / candidate.max_running
    return steps * (alone + costs.sequence) + context * costs.context_token


def _giving(profile: HardwareProfile) -> float:
    """Return the part of core seconds left in a step that leaves half the cores.

    It leaves half of them to others; the value is a part of its own.
    """
    cores = profile.device.cores or 1
    return min(1.0, profile.costs.half * max(1, cores // 2) / cores)
