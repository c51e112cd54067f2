"""Turn the workers' tokens into what clients read."""

import logging

from unifiedserve.engine.requests.dispatch import Dispatch
from unifiedserve.engine.requests.lifecycle import Lifecycle
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.errors import ErrorKind
from unifiedserve.messages.api import Delta
from unifiedserve.messages.wire import Token
from unifiedserve.observe.metrics import Metrics

_log = logging.getLogger(__name__)


class TokenFlow:
    """Take tokens, in order for each answer, and put out the pieces of the answers. Times are monotonic seconds."""

    def __init__(self, table: RequestTable, lifecycle: Lifecycle, dispatch: Dispatch, metrics: Metrics) -> None:
        self._table = table
        self._lifecycle = lifecycle
        self._dispatch = dispatch
        self._metrics = metrics

    def take(self, token: Token, now: float) -> None:
        """Push a token, and those that waited for it; a defect fails the request."""
        active = self._table.serving(token.uid)
        if active is None:
            return
        for ready in active.answers[token.index].in_order(token):
            try:
                self._push(active, ready, now)
            except Exception as error:
                _log.exception("could not handle a token")
                self._lifecycle.fail(active, f"internal error: {error}", ErrorKind.INTERNAL)

    def finish_without(self, uid: int, now: float) -> None:
        """End the answers of an attempt that wants no tokens: it is at the end of its prompt."""
        active = self._table.serving(uid)
        if active is None:
            return
        for index in sorted(active.attempts[uid]):
            self._table.leave(uid, index)
            self._put(active, active.answers[index].end(index, active.pooled), now)

    def _push(self, active: ActiveRequest, token: Token, now: float) -> None:
        answer = active.answers[token.index]
        if answer.finished:
            return
        if token.error:
            self._lifecycle.fail(active, token.error, ErrorKind.INVALID)
            return
        self._clock(active, token.index, now)
        self._table.came(token.uid, token.index)
        delta = answer.push(token, active.cached_tokens)
        if answer.finished:
            self._leave(token)
        if delta is not None:
            self._put(active, delta, now)

    def _clock(self, active: ActiveRequest, index: int, now: float) -> None:
        answer = active.answers[index]
        if answer.last_token is None:
            self._metrics.first_token(now - active.arrival)
            self._table.tally.first_token(
                now - (active.read_at - active.wanted_at), active.due
            )  # others' time is theirs
        else:
            self._metrics.token_gap(now - answer.last_token)
        answer.last_token = now

    def _leave(self, token: Token) -> None:
        if token.finish is None:  # a stop string: decode does not know
            self._dispatch.end_answer(token.uid, token.index)
        self._table.leave(token.uid, token.index)

    def _put(self, active: ActiveRequest, delta: Delta, now: float) -> None:
        if delta.finish_reason:
            self._metrics.request_finished(
                delta.finish_reason, now - active.arrival, delta.prompt_tokens, delta.generated_tokens
            )
        active.outputs.put_nowait(delta)
