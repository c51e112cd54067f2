"""Hear of a router's nodes: from its command line, or line by line from its starter."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from unifiedserve.cluster.members import Member, Membership, read_membership
from unifiedserve.errors import NO_JSON, ConfigError

_log = logging.getLogger(__name__)

FROM_STDIN = "-"


def members_of(nodes: str) -> list[Member]:
    """Return the members at URLs that have commas between them. Raises ConfigError for one that is none."""
    urls = [url.strip() for url in nodes.split(",")]
    for url in urls:
        if not _is_url(url):
            raise ConfigError(f"--nodes {url}: expected URLs such as http://10.0.0.7:8000, or - for standard input")
    return [Member(name=f"node-{number}", pool="nodes", url=url.rstrip("/")) for number, url in enumerate(urls)]


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:  # a port that is none, brackets without an address, or a name that no resolver takes
        return False


async def told(nodes: str) -> AsyncIterator[Membership]:
    """Yield the members that an option names, or those of each line on standard input. Raises ConfigError."""
    if nodes != FROM_STDIN:
        yield Membership(members_of(nodes))
        return
    reader = asyncio.StreamReader(limit=1 << 24)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async for line in reader:
        try:
            yield read_membership(line)
        except NO_JSON as error:
            _log.error("the members stay as they were: %s", error)
