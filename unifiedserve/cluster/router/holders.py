"""Find what a node keeps for its clients, by asking all. Uploads and responses are kept so: no router remembers it."""

import asyncio
from collections.abc import Mapping

import aiohttp

from unifiedserve.cluster.router.nodes import Node, Nodes

_PATIENCE = aiohttp.ClientTimeout(total=2.0)


async def holder(http: aiohttp.ClientSession, nodes: Nodes, path: str, headers: Mapping[str, str]) -> Node | None:
    """Return the node that keeps what is at a path; None if none does."""
    asked = [node for node in nodes.each() if node.report]

    async def has(node: Node) -> bool:
        try:
            async with http.get(node.member.url + path, headers=headers, timeout=_PATIENCE) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    found = await asyncio.gather(*map(has, asked))
    return next((node for node, there in zip(asked, found, strict=True) if there), None)
