"""Cost a worker's steps by the profile of its device."""

from unifiedserve.profiles.hardware_profile import HardwareProfile
from unifiedserve.scheduling.profile import StepSeconds


def steps_of(profile: HardwareProfile, threads: int) -> StepSeconds:
    """Return the steps' costs for a worker alone on a GPU or so many threads."""
    return profile.costs.steps(slower=max(1.0, profile.device.cores / threads))
