"""Find out whether hardware can read memories of other machines."""

from importlib.util import find_spec
from pathlib import Path

_ADAPTERS = Path("/sys/class/infiniband")


def reads_by_hardware() -> bool:
    """Return whether this machine has an RDMA adapter, and NIXL to use it; without one, NIXL is slower than TCP."""
    return _ADAPTERS.is_dir() and any(_ADAPTERS.iterdir()) and find_spec("nixl") is not None
