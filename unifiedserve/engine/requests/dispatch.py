"""Sends requests to the workers."""

from collections.abc import Sequence

import msgspec

from unifiedserve.engine.requests.place import place, work_of
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.requests.wire_requests import prefill_request, vision_request
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.workers import Workers
from unifiedserve.messages.wire import Abort
from unifiedserve.observe.broadcast import Broadcast
from unifiedserve.observe.tracing import Timeline
from unifiedserve.placement import Load, Stage, choose_route
from unifiedserve.scheduling import Targets


class Dispatch:
    """Sends attempts at requests to the instances that host their stages, and calls them back."""

    def __init__(
        self,
        roles: Roles,
        table: RequestTable,
        workers: Workers,
        targets: Targets,
        timeline: Timeline,
        broadcast: Broadcast,
    ) -> None:
        self._roles = roles
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
        if route := self._table.route(uid):
            for host in route.hosts(route.first):
                self._workers.send(host, Abort(uid, route, stage=route.first))

    def end_answer(self, uid: int, index: int) -> None:
        """Have decode drop an answer that is complete without its knowledge."""
        if route := self._table.route(uid):
            self._workers.send(route.decode, Abort(uid, route, index))

    def _attempt(self, active: ActiveRequest, indices: list[int]) -> None:
        uid = self._table.new_uid()
        placement = self._roles.open
        route = choose_route(placement, self._table.loads(), media=bool(active.sources))
        request = prefill_request(active, uid, indices, route, self._workers.caches)
        work = work_of(active, request)
        request.ticket = msgspec.structs.replace(place(active, request.ticket, work, self._targets), route=route)
        active.work = request.ticket.work
        watched = self._broadcast.watches(active.viewer)
        near = all(placement.memory_of(each) == placement.memory_of(route.prefill) for each in route.encode[:1])
        vision = vision_request(active, request.ticket, request.reuse, watched=watched, recalls=near)
        if vision is None:
            route = route.at_prefill()
            request.ticket = msgspec.structs.replace(request.ticket, route=route)
        else:
            request.window = vision.window
        for instance in dict.fromkeys([route.prefill, *route.encode]):
            self._workers.send(instance, request)
        left = {Stage.VISION: work.encode, Stage.ENCODE: work.encode, Stage.PREFILL: work.prompt}
        self._table.begin(uid, active, indices, Load(route, left))
        self._timeline.name(uid, active.id)
        if vision:
            self._workers.send(route.vision, vision)
