"""Report how busy an engine is, for a router."""

import msgspec

from unifiedserve.messages.costs import Costs
from unifiedserve.placement import Stage


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Count the requests and work in an engine. `wait` are the seconds until one more request has its turn.

    `visual_tokens` are still to be decoded and encoded, `prompt_tokens` to be prefilled (ModServe §4.3).
    """

    in_flight: int = 0
    waiting: int = 0  # for their first token, or for a place among those that decode
    wait: float = 0.0
    visual_tokens: int = 0
    prompt_tokens: int = 0
    streams: int = 0  # answers that have begun
    kv_free: int = 0  # pages
    kv_total: int = 0
    costs: Costs = Costs()
    backlog: float = 0.0  # seconds of work of those that wait for their first token
    work: float = 0.0  # seconds, of all that came since the start: to encode and to prefill, as estimated
    first_tokens: int = 0  # since the start
    on_time: int = 0  # of them, those that came when they were owed, or before


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report the load of an engine. `started` tells it from an earlier one at the same address.

    Of the `stages` that it does not host other nodes have some.
    """

    model: str
    version: str
    started: int  # seconds since 1970
    healthy: bool
    max_model_len: int
    load: EngineLoad
    stages: tuple[Stage, ...] = tuple(Stage)


class EncodeNode(msgspec.Struct, frozen=True):
    """Describe a node that encodes for others: where it listens, and the visual tokens still to encode."""

    url: str
    pending: int = 0
