"""Choose the carrier that leads from one memory to another."""

from collections.abc import Callable, Collection

from ipc_buffers import Bell
from unifiedserve.carriers.base import Carrier
from unifiedserve.carriers.cuda_ipc import CudaIpcCarrier
from unifiedserve.carriers.nixl import NixlCarrier
from unifiedserve.carriers.setting import Setting, Site, this_machine
from unifiedserve.carriers.shared import SharedCarrier
from unifiedserve.carriers.tcp import TcpCarrier
from unifiedserve.errors import ConfigError

AUTO = "auto"
_KINDS: dict[str, Callable[[Setting, Bell], Carrier]] = {
    "shared": SharedCarrier,
    "tcp": TcpCarrier,
    "nixl": NixlCarrier,
    "cuda_ipc": CudaIpcCarrier,
}
KINDS = (AUTO, *_KINDS)


def resolve(kind: str, sites: Collection[Site]) -> str:
    """Return the kind of carrier that "auto" means between memories at these sites.

    It is "shared" where all are in this machine's host memory, "cuda_ipc" where all are on its GPUs, "nixl" where all
    machines read by hardware, else "tcp". Raises ConfigError for a kind that there is not, or memories that no carrier
    leads between.
    """
    if kind not in KINDS:
        raise ConfigError(f"there is no carrier {kind!r}; choose one of {', '.join(KINDS)}")
    if kind != AUTO:
        return kind
    here = all(site.machine == this_machine() for site in sites)
    on_host = {site.place == "host" for site in sites}
    if on_host == {False} and here:
        return "cuda_ipc"
    if False in on_host:
        places = ", ".join(sorted({site.place for site in sites}))
        raise ConfigError(
            f"no carrier leads between {places}, here and on other machines; put all memories in one kind of place"
        )
    if here:
        return "shared"
    return "nixl" if all(site.rdma for site in sites) else "tcp"


def open_carrier(kind: str, setting: Setting, bell: Bell, sites: Collection[Site] = ()) -> Carrier:
    """Open the carrier of a kind. Kind "auto" chooses one between memories at `sites`.

    It rings the bell when it has something to tell. Raises ConfigError for one that is not installed here, or
    cannot be opened as it is set.
    """
    return _KINDS[resolve(kind, sites)](setting, bell)
