"""Ask a node what a request with media takes. FlashCodec's plan knows packets, frames and tokens in milliseconds.

A node's answer about the same media is remembered, as a hint only: nothing is lost with a router.
"""

from collections.abc import Mapping

import aiohttp
import msgspec
from cachetools import LRUCache

from unifiedserve.cluster.router.asked import Asked
from unifiedserve.cluster.router.nodes import Node, Nodes
from unifiedserve.cluster.routing import Request
from unifiedserve.errors import NO_JSON
from unifiedserve.scheduling import Work
from unifiedserve.server.plan.reply import PlanReply

_PATIENCE = aiohttp.ClientTimeout(total=2.0)
_REMEMBERED = 4096
_PLANNED = "/v1/chat/completions"  # whose bodies /v1/plan takes
_TYPICAL = Work(prompt_tokens=1000, visual_tokens=1000, image_pixels=1 << 20, video_seconds=0.2)  # a medium, unknown


class Plans:
    """Find out what requests take. Belongs to the router's event loop."""

    def __init__(self, http: aiohttp.ClientSession, nodes: Nodes) -> None:
        self._http = http
        self._nodes = nodes
        self._works: LRUCache[str, Work] = LRUCache(_REMEMBERED)
        self._homes: LRUCache[str, frozenset[str]] = LRUCache(_REMEMBERED)

    async def request(self, path: str, asked: Asked, body: bytes, headers: Mapping[str, str]) -> Request:
        """Return a request as policies take it."""
        if not asked.media:
            known = next((each for each in reversed(asked.prefixes) if each.key in self._homes), None)
            cached = Work(prompt_tokens=known.tokens if known else 0)
            return Request(
                Work(prompt_tokens=asked.tokens), asked.key, cached, self._homes[known.key] if known else frozenset()
            )
        media = self._works.get(asked.key)
        if media is None and path == _PLANNED and (node := self._nodes.choose(asked.model, Request(_typical(asked)))):
            media = await self._planned(node, body, headers)
            if media is not None:
                self._works[asked.key] = media
        media = media or _typical(asked)
        whole = msgspec.structs.replace(media, prompt_tokens=media.prompt_tokens + asked.tokens)
        return Request(whole, asked.key, media, self._homes.get(asked.key, frozenset()))

    def served(self, asked: Asked, node: str) -> None:
        """Note that a node has served a request. It has the request's media, or all of its texts, by now."""
        key = asked.key if asked.media else asked.prefixes[-1].key if asked.prefixes else ""
        if key:
            self._homes[key] = self._homes.get(key, frozenset()) | {node}

    async def _planned(self, node: Node, body: bytes, headers: Mapping[str, str]) -> Work | None:
        """Return the work of a request's media by a node's plan; None if it makes none."""
        try:
            async with self._http.post(
                f"{node.member.url}/v1/plan", data=body, headers=headers, timeout=_PATIENCE
            ) as response:
                if response.status != 200:
                    return None  # the node that serves it says why
                plan = msgspec.json.decode(await response.read(), type=PlanReply)
        except (aiohttp.ClientError, TimeoutError, *NO_JSON):
            return None
        return work_of(plan)


def work_of(plan: PlanReply) -> Work:
    """Return the work for the media of a plan; unknown work of a video counts as nothing."""
    images = [medium for medium in plan.media if medium.kind == "image"]
    visual = sum(medium.tokens for medium in plan.media)
    return Work(
        prompt_tokens=visual,
        visual_tokens=visual,
        image_pixels=sum(medium.width * medium.height for medium in images),
        video_seconds=sum(medium.packets.seconds for medium in plan.media if medium.packets),
    )


def _typical(asked: Asked) -> Work:
    amounts = {name: amount * asked.media for name, amount in msgspec.structs.asdict(_TYPICAL).items()}
    return Work(**amounts)
