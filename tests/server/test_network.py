"""Which addresses are public."""

import asyncio
import re
import socket
import threading
from ipaddress import ip_address

import pytest

from unifiedserve.server.media.network import ForbiddenAddressError, check_public, is_public, resolve

PRIVATE = re.findall(
    r"\S+",
    """
    127.0.0.1 127.8.8.8 0.0.0.0 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1
    224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 192.0.2.1 198.18.0.1 198.51.100.7 203.0.113.9
    :: ::1 fe80::1 fe80::1%eth0 fc00::1 fd12::1 fec0::1 ff02::1 2001:db8::1 100::1
    ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1
    64:ff9b::7f00:1 64:ff9b::a00:1 2002:7f00:1:: 2002:a00:1::1 2001:0:4136:e378:8000:63bf:f5ff:fffe
    """,
)
PUBLIC = ["93.184.216.34", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", PRIVATE)
def test_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(ip_address(address))


def test_one_private_address_taints_the_name() -> None:
    check_public(PUBLIC)
    with pytest.raises(ForbiddenAddressError, match=r"10\.0\.0\.1"):
        check_public([*PUBLIC, "10.0.0.1"])


async def test_names_that_do_not_resolve_keep_no_other_work_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def look_up(*given: object, **options: object) -> list[object]:
        answered.wait()
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    looked_up = [asyncio.create_task(resolve(f"{number}.example", 80)) for number in range(100)]
    try:
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 60) == "done"
    finally:
        answered.set()
        found = await asyncio.gather(*looked_up, return_exceptions=True)
    assert all(isinstance(each, OSError) for each in found)
