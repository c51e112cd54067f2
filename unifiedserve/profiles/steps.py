"""Cost a worker's steps by the profile of its device."""

from unifiedserve.profiles.hardware_profile import HardwareProfile
from unifiedserve.scheduling.profile import StepSeconds


def steps_of(profile: HardwareProfile, threads: int) -> StepSeconds:
    """Return the costs of steps for a worker alone. It has a GPU, or so many threads of a CPU."""
    return profile.costs.steps(slower=max(1.0, profile.device.cores / threads))
