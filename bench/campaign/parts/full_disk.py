"""A disk that is full: what is uploaded finds no room, and all else goes on."""

import resource
from random import Random

from bench.campaign.asking import Request, send
from bench.campaign.cases import Seen, Target
from bench.campaign.parts.media_files import Medium, upload
from bench.campaign.parts.ordinary import image, text

_ROOM = 4 << 20  # bytes that a file may have, as if the disk had no more
_LARGE = bytes(16 << 20)


async def full_disk(target: Target, random: Random) -> Seen:
    """Let the server write no more than some megabytes to a file; afterwards there is room again."""
    usual = resource.prlimit(target.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(target.pid, resource.RLIMIT_FSIZE, (_ROOM, usual[1]))
    try:
        refused = await send(target, _upload(_LARGE, 507))
        for request in (_upload(random.randbytes(1000), 200), text(), image(random)):
            await send(target, request)
    finally:
        resource.prlimit(target.pid, resource.RLIMIT_FSIZE, usual)
    await send(target, _upload(_LARGE, 200))
    return refused


def _upload(data: bytes, status: int) -> Request:
    return upload(Medium(data, "image"))._replace(expect=(status,))
