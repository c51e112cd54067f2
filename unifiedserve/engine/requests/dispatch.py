"""Send requests to the workers."""

from collections.abc import Mapping, Sequence

import msgspec

from unifiedserve.engine.requests.place import Work, place, work_of
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import Attempt, RequestTable
from unifiedserve.engine.requests.wire_requests import (
    continued,
    encode_request,
    prefill_request,
    vision_request,
)
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.workers import Workers
from unifiedserve.memory.sequence_tables import Key, Row
from unifiedserve.messages.wire import Abort, Generation
from unifiedserve.observe.broadcast import Broadcast
from unifiedserve.observe.tracing import Timeline
from unifiedserve.placement import Load, Stage, choose_route
from unifiedserve.scheduling import Targets


class Dispatch:
    """Send attempts at requests to the instances that host their stages, and call them back."""

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

    def can_serve(self, active: ActiveRequest) -> bool:
        """Tell whether each stage that a request may need takes new ones."""
        hosted = self._roles.placement.stages  # other nodes have the others
        stages = hosted if active.sources else (Stage.PREFILL, Stage.DECODE)
        return all(self._roles.open.hosts(stage) for stage in stages)

    def submit(self, active: ActiveRequest, indices: Sequence[int]) -> None:
        """Send new attempts at these answers through the stages; those that have tokens already each go on alone.

        There must be workers that take it. Raises RequestError for a request that is too large for a message.
        """
        if active.to_encode is not None:
            self._begin_encoding(active)
            return
        fresh = [index for index in indices if not active.answers[index].token_ids]
        begun = [[index] for index in indices if active.answers[index].token_ids]
        for group in ([fresh] if fresh else []) + begun:
            self._attempt(active, group)

    def go_on(self, uid: int, attempt: Attempt, rows: Mapping[Key, Row]) -> bool:
        """Have the next worker decode an attempt from where the dead one was. All of its answers must have their pages.

        Nothing is computed again, and no reference is left but those of these page tables.
        """
        active, route, wanted = attempt.request, attempt.route, attempt.request.attempts[uid]
        if active.ending or not wanted or not all((uid, index) in rows for index in wanted):
            return False
        owed = place(active, active.ticket(uid), Work(prompt=1, encode=0, visual=0), self._targets)
        ticket = msgspec.structs.replace(owed, route=route)
        caches, memory = self._workers.caches, self._workers.memory
        answers = [continued(active, ticket, index, rows[uid, index], caches) for index in sorted(wanted)]
        kv = memory.pools[self._roles.placement.memory_of(route.decode), "kv"]
        kv.settle(uid, [page for answer in answers for page in answer.pages])
        for answer in answers:
            self._workers.send(route.decode, answer)
        return True

    def hand_on(self, uid: int, attempt: Attempt, unread: Mapping[Key, Generation]) -> bool:
        """Send the next worker the unread messages that hand it an attempt. Nothing of the attempt may lack."""
        active, wanted = attempt.request, attempt.request.attempts[uid]
        handed = {index: answer for (of, index), answer in unread.items() if of == uid}
        if active.ending or not wanted or handed.keys() != set(wanted):
            return False
        for answer in handed.values():
            self._workers.send(attempt.route.decode, answer)
        return True

    def abort(self, uid: int) -> None:
        """Have an attempt leave all stages; `Drained` tells when it has."""
        if route := self._table.route(uid):
            for host in route.hosts(route.first):
                self._workers.send(host, Abort(uid, route, stage=route.first))

    def end_answer(self, uid: int, index: int) -> None:
        """Have decode drop an answer that is complete without its knowledge."""
        if route := self._table.route(uid):
            self._workers.send(route.decode, Abort(uid, route, index))

    def _begin_encoding(self, active: ActiveRequest) -> None:
        """Send what another node wants encoded to the stages that do so."""
        uid, caches = self._table.new_uid(), self._workers.caches
        route = choose_route(self._roles.open, self._table.loads())
        request = encode_request(active, uid, caches)
        tokens = sum((active.to_encode or {}).values())
        ticket = place(active, request.ticket, Work(prompt=0, encode=tokens, visual=tokens), self._targets)
        whole = sum(plan.tokens for plan in request.media)  # other nodes may have parts that are due with this one
        due = place(active, request.ticket, Work(prompt=0, encode=whole, visual=whole), self._targets).due
        request.ticket = msgspec.structs.replace(ticket, route=route, due=due)
        active.work, active.due = ticket.work, ticket.due
        self._table.tally.begin(active.work)
        vision = vision_request(active, request.ticket, request.reuse)
        assert vision is not None
        request.window = vision.window
        for encoder in route.encode:
            self._workers.send(encoder, request)
        self._table.begin(uid, active, [0], Load(route, {Stage.VISION: tokens, Stage.ENCODE: tokens}))
        self._timeline.name(uid, active.id)
        self._workers.send(route.vision, vision)

    def _attempt(self, active: ActiveRequest, indices: list[int]) -> None:
        uid = self._table.new_uid()
        placement = self._roles.open
        route = choose_route(placement, self._table.loads(), media=bool(active.sources))
        request = prefill_request(active, uid, indices, route, self._workers.caches)
        work = work_of(active, request)
        request.ticket = msgspec.structs.replace(place(active, request.ticket, work, self._targets), route=route)
        active.work, active.due = request.ticket.work, request.ticket.due
        self._table.tally.begin(active.work)
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
