"""Finished requests as OpenTelemetry traces, in memory and as a collector gets them."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Span
from unifiedserve.observe import otel
from unifiedserve.observe.otel import CALLERS_TRACE, Traces, traces_of_environment
from unifiedserve.observe.tracing import Timeline
from unifiedserve.placement import Stage

ABSENT = "the packages of the extra `otel` are not installed"
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=ABSENT)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=ABSENT)

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> Any:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter: Any) -> Traces:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Traces(provider.get_tracer("test"))


def asked(id: str = "chatcmpl-1", **fields: Any) -> GenerateRequest:
    return GenerateRequest(id=id, messages=[{"role": "user", "content": "a secret"}], **fields)


def piece(generated: int, finish: Any = None, index: int = 0) -> Delta:
    return Delta(
        index=index, text="hidden", token_ids=[1], finish_reason=finish, prompt_tokens=7, generated_tokens=generated
    )


def serve(traces: Traces, request: GenerateRequest, uid: int = 1) -> float:
    """Take a request through all stages, and return when it arrived."""
    arrival = time.monotonic() - 10
    timeline = Timeline(arrival, traces)
    trace = traces.begin(request, arrival, "a-model")
    timeline.name(uid, request.id)
    for number, stage in enumerate(Stage):
        at = arrival + 2 * number
        timeline.add([Span(stage, "queue", at, at + 0.5, [uid]), Span(stage, "step", at + 0.5, at + 1, [uid, 99, uid])])
    timeline.add([Span(Stage.DECODE, "step", arrival + 8, arrival + 9, [99, uid])])
    trace.take(piece(1))
    trace.take(piece(2, "stop"))
    trace.end()
    return arrival


def test_a_request_is_a_span_with_one_for_each_stage_in_it(traces: Traces, exporter: Any) -> None:
    arrival = serve(traces, asked())
    *stages, root = exporter.get_finished_spans()
    assert [span.name for span in stages] == ["vision", "encode", "prefill", "decode"]
    assert {span.parent.span_id for span in stages} == {root.context.span_id}
    assert (root.name, root.kind.name, root.parent) == ("chat a-model", "SERVER", None)
    assert root.status.is_ok
    attributes = dict(root.attributes)
    assert 10 <= attributes.pop("gen_ai.latency.time_to_first_token") <= time.monotonic() - arrival
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "unifiedserve",
        "gen_ai.request.model": "a-model",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.response.finish_reasons": ("stop",),
    }
    assert "secret" not in root.to_json() + "".join(span.to_json() for span in stages)


def test_spans_are_as_long_as_the_work(traces: Traces, exporter: Any) -> None:
    serve(traces, asked())
    *_, decode, root = exporter.get_finished_spans()
    assert (decode.start_time - root.start_time) / 1e9 == pytest.approx(6.5, abs=1e-3)
    assert (decode.end_time - decode.start_time) / 1e9 == pytest.approx(2.5, abs=1e-3)
    assert decode.attributes["unifiedserve.steps"] == 2
    assert decode.attributes["unifiedserve.queue_seconds"] == pytest.approx(0.5)
    assert root.end_time > decode.end_time


def test_the_callers_trace_goes_on(traces: Traces, exporter: Any) -> None:
    token = CALLERS_TRACE.set({"traceparent": CALLER})
    serve(traces, asked())
    CALLERS_TRACE.reset(token)
    *_, root = exporter.get_finished_spans()
    assert f"{root.context.trace_id:032x}" == CALLER.split("-")[1]
    assert f"{root.parent.span_id:016x}" == CALLER.split("-")[2]


@pytest.mark.parametrize("header", ["", "00-nonsense", CALLER.removeprefix("00-"), "é" * 300])
def test_an_odd_traceparent_begins_a_trace(traces: Traces, exporter: Any, header: str) -> None:
    token = CALLERS_TRACE.set({"traceparent": header})
    serve(traces, asked())
    CALLERS_TRACE.reset(token)
    assert exporter.get_finished_spans()[-1].parent is None


def test_a_caller_may_ask_not_to_be_traced(traces: Traces, exporter: Any) -> None:
    token = CALLERS_TRACE.set({"traceparent": CALLER.removesuffix("01") + "00"})
    serve(traces, asked())
    CALLERS_TRACE.reset(token)
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([piece(1)], "aborted"),
        ([piece(1), RequestError("no", ErrorKind.UNAVAILABLE)], "unavailable"),
        ([piece(1, "stop", 0), piece(1, None, 1)], "aborted"),
    ],
)
def test_what_is_not_complete_says_why(
    traces: Traces, exporter: Any, pieces: list[Delta | RequestError], error: str
) -> None:
    trace = traces.begin(asked(sampling=SamplingParams(n=2)), time.monotonic(), "a-model")
    for each in pieces:
        trace.take(each)
    trace.end()
    (root,) = exporter.get_finished_spans()
    assert root.attributes["error.type"] == error
    assert not root.status.is_ok


def test_answers_are_counted_together(traces: Traces, exporter: Any) -> None:
    trace = traces.begin(asked(sampling=SamplingParams(n=2)), time.monotonic(), "a-model")
    for each in [piece(5, "length", 1), piece(1), piece(3, "stop")]:
        trace.take(each)
    trace.end()
    (root,) = exporter.get_finished_spans()
    assert root.attributes["gen_ai.usage.output_tokens"] == 8
    assert root.attributes["gen_ai.response.finish_reasons"] == ("stop", "length")
    assert root.status.is_ok


def test_work_after_the_end_is_nobodys(traces: Traces, exporter: Any) -> None:
    serve(traces, asked(), uid=1)
    late = Timeline(0.0, traces)
    late.name(2, "chatcmpl-1")
    late.add([Span(Stage.DECODE, "step", 0.0, 1.0, [1, 2])])
    exporter.clear()
    serve(traces, asked(), uid=3)
    assert [span.name for span in exporter.get_finished_spans()][:4] == ["vision", "encode", "prefill", "decode"]
    assert exporter.get_finished_spans()[3].attributes["unifiedserve.steps"] == 2


def test_a_failure_is_none_of_the_requests(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def start_span(self, *_: object, **__: object) -> None:
            raise ZeroDivisionError

    serve(Traces(Broken()), asked())  # type: ignore[arg-type]
    assert [record.message for record in caplog.records] == ["a trace is lost"]


def test_without_an_endpoint_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.setattr(otel, "_tracer", lambda: pytest.fail("nobody asked"))
    serve(traces_of_environment(), asked())


def test_absent_packages_are_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    otel._tracer.cache_clear()
    for _ in range(2):
        serve(traces_of_environment(), asked())
    otel._tracer.cache_clear()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "unifiedserve[otel]" in record.message


class Collector(BaseHTTPRequestHandler):
    got: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        self.got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[HTTPServer]:
    Collector.got = []
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


CODE = """
import time
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.observe.otel import traces_of_environment
traces_of_environment().begin(GenerateRequest(id="cmpl-1"), time.monotonic(), "a-model").end()
"""


def test_a_collector_gets_what_is_left_at_the_end_of_the_process(collector: HTTPServer) -> None:
    port = collector.server_address[1]
    environment = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "300",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=ours",
    }
    subprocess.run([sys.executable, "-c", CODE], env=environment, check=True)
    ((path, body),) = Collector.got
    assert path == "/v1/traces"
    assert all(word in body for word in (b"ours", b"text_completion a-model", b"cmpl-1", b"aborted"))
