"""What clients may send to /v1/placement, and what they read there."""

import msgspec

from unifiedserve.messages.seen import SeenInstance
from unifiedserve.server.requests.base import ModelRequest


class RoleRequest(ModelRequest, kw_only=True):
    """`stages` are letters as in --placement: v, e, p and d."""

    instance: str
    stages: str


class PlacementReply(msgspec.Struct):
    """All workers."""

    instances: list[SeenInstance]
