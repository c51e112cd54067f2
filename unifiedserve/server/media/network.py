"""Check addresses that a client's URL may reach: a guard against requests to the server's own network."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address

_NAMES = ThreadPoolExecutor(16, "names")  # of their own: a client's name servers may never answer
_NAT64 = IPv6Network("64:ff9b::/96")


class ForbiddenAddressError(Exception):
    """Signal a host that resolves to an address outside the public internet."""


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of `host`, in the resolver's order, each once; raise OSError if there is none."""
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_NAMES, look_up)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def check_public(addresses: list[str]) -> None:
    """Raise ForbiddenAddressError if any of `addresses` is not public: one bad answer taints the name."""
    for text in addresses:
        if not is_public(ip_address(text)):
            raise ForbiddenAddressError(f"resolves to {text}, which is not a public address")


def is_public(address: Address) -> bool:
    """Return True for a global unicast address that hides no other (IPv4 in IPv6 counts as the IPv4 it reaches)."""
    if isinstance(address, IPv6Address):
        if (inner := _embedded_ipv4(address)) is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address reached through a mapped, 6to4, Teredo or NAT64 one (RFCs 4291, 3056, 4380, 6052)."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour
