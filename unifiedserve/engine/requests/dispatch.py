"""Sends requests to the workers."""

from collections.abc import Sequence

from unifiedserve.config import Placement, Stage
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.requests.wire_requests import prefill_request, vision_request
from unifiedserve.engine.workers import Workers
from unifiedserve.messages.wire import Abort
from unifiedserve.observe.broadcast import Broadcast
from unifiedserve.observe.tracing import Timeline
from unifiedserve.scheduling import Targets


class Dispatch:
    """Sends attempts at requests to the instances that host their stages, and calls them back."""

    def __init__(
        self,
        placement: Placement,
        table: RequestTable,
        workers: Workers,
        targets: Targets,
        timeline: Timeline,
        broadcast: Broadcast,
    ) -> None:
        self._placement = placement
        self._table = table
        self._workers = workers
        self._targets = targets
        self._timeline = timeline
        self._broadcast = broadcast

    def submit(self, active: ActiveRequest, indices: Sequence[int]) -> None:
        """Send new attempts at these answers through the stages; those that have tokens already each go on alone.

        Raises RequestError for a request that is too large for a message.
        """
        fresh = [index for index in indices if not active.answers[index].token_ids]
        begun = [[index] for index in indices if active.answers[index].token_ids]
        for group in ([fresh] if fresh else []) + begun:
            self._attempt(active, group)

    def abort(self, uid: int) -> None:
        """Have an attempt leave all stages; `Drained` tells when it has."""
        self._workers.send(self._placement.host(Stage.VISION), Abort(uid))

    def end_answer(self, uid: int, index: int) -> None:
        """Have decode drop an answer that is complete without its knowledge."""
        self._workers.send(self._placement.host(Stage.DECODE), Abort(uid, index))

    def _attempt(self, active: ActiveRequest, indices: list[int]) -> None:
        uid, host = self._table.new_uid(), self._placement.host
        request = prefill_request(active, uid, indices, self._workers.caches, self._targets)
        active.work = request.ticket.work
        for instance in dict.fromkeys([host(Stage.ENCODE), host(Stage.PREFILL)]):
            self._workers.send(instance, request)
        self._table.begin(uid, active, indices)
        self._timeline.name(uid, active.id)
        watched = self._broadcast.watches(active.viewer)
        if vision := vision_request(active, request.ticket, request.reuse, watched=watched):
            self._workers.send(host(Stage.VISION), vision)
