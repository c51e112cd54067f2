"""What a worker's steps take by the profile of its device."""

from unifiedserve.profiles.hardware_profile import HardwareProfile
from unifiedserve.scheduling.profile import StepSeconds


def steps_of(profile: HardwareProfile, threads: int) -> StepSeconds:
    """Return what steps take a worker alone on a GPU, or with so many threads of a CPU."""
    return profile.costs.steps(slower=max(1.0, profile.device.cores / threads))
