"""Name this machine's hardware and software, as `unifiedserve doctor` does."""

from importlib.metadata import version

from unifiedserve import __version__
from unifiedserve.doctor import system
from unifiedserve.doctor.gpu import driver_release


def hardware_name(gpu: str | None = None) -> str:
    """Return the name of a GPU as it is. Without one it is the machine's processor with its cores."""
    if gpu is not None:
        return gpu
    return f"{system.cpu().value}, {system.cores().value} cores"


def versions_here(*, gpu: bool = False) -> dict[str, str]:
    """Return the versions of what costs depend on, beside the model and the hardware."""
    own = {"unifiedserve": __version__, "torch": version("torch")}
    return {**own, "driver": driver_release() or "unknown"} if gpu else own
