"""Define requests to /v1/placement, and their answers."""

import msgspec

from unifiedserve.messages.seen import SeenInstance
from unifiedserve.server.requests.base import ModelRequest


class RoleRequest(ModelRequest, kw_only=True):
    """Ask for another role. `stages` are letters as in --placement: v, e, p and d."""

    instance: str
    stages: str


class PlacementReply(msgspec.Struct):
    """List all workers."""

    instances: list[SeenInstance]
