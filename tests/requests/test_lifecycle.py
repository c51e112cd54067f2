"""Requests end once, for one reason, and are counted by it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from unifiedserve.engine.requests.lifecycle import Lifecycle
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.observe.metrics import Metrics


def nothing(*_: object) -> None: ...


def refuse(*_: object) -> None:
    raise RequestError("too large for a message")


def aborted(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("unifiedserve:num_aborted_requests_total")


def begun(submit: Any = nothing) -> tuple[Lifecycle, ActiveRequest, Metrics]:
    """A request whose answer is not complete, in an engine whose workers take it by `submit`."""
    table, metrics = RequestTable(1, nothing), Metrics()
    dispatch = SimpleNamespace(abort=nothing, can_serve=lambda active: True, submit=submit)
    planned = SimpleNamespace(prompt=SimpleNamespace(token_ids=[1]))
    answer = SimpleNamespace(finished=False, last_token=None)
    active = ActiveRequest(cast(Any, planned), 0.0, [cast(Any, answer)])
    table.add(active)
    return Lifecycle(table, cast(Any, dispatch), metrics), active, metrics


def test_a_client_that_leaves_is_counted_once() -> None:
    lifecycle, active, metrics = begun()
    lifecycle.submit(active)
    lifecycle.end(active)
    lifecycle.end(active)
    assert aborted(metrics) == 1


def test_a_client_that_hears_of_an_error_has_not_left() -> None:
    lifecycle, active, metrics = begun()
    lifecycle.submit(active)
    lifecycle.fail(active, "no video", ErrorKind.INVALID)
    lifecycle.end(active)
    assert aborted(metrics) == 0


def test_nor_has_one_that_hears_that_the_engine_ends() -> None:
    lifecycle, active, metrics = begun()
    lifecycle.submit(active)
    lifecycle.fail_all("shutting down")
    lifecycle.end(active)
    assert aborted(metrics) == 0


def test_nor_has_one_whose_request_no_worker_takes() -> None:
    lifecycle, active, metrics = begun(refuse)
    with pytest.raises(RequestError):
        lifecycle.submit(active)
    lifecycle.end(active)
    assert aborted(metrics) == 0
