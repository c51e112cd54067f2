"""The log's lines: today's text, or a JSON object each."""

import json
import logging
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from unifiedserve.observe.logs import REQUEST_ID, JsonFormatter


def written(record: logging.LogRecord) -> dict[str, Any]:
    (line,) = JsonFormatter("decode").format(record).splitlines()
    parsed: dict[str, Any] = json.loads(line)
    return parsed


def record(message: str, *arguments: object, exc_info: Any = None) -> logging.LogRecord:
    return logging.LogRecord("a.logger", logging.WARNING, __file__, 1, message, arguments, exc_info)


def test_a_record_is_one_object() -> None:
    made = record("%s\nsaid \u2028 %d", "somebody", 3)
    line = written(made)
    time = datetime.strptime(line.pop("time"), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert time.timestamp() == pytest.approx(made.created, abs=1e-5)
    assert line == {
        "level": "WARNING",
        "logger": "a.logger",
        "instance": "decode",
        "message": "somebody\nsaid \u2028 3",
    }


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        line = written(record("it broke", exc_info=sys.exc_info()))
    assert line["message"] == "it broke"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: two\nlines")


def test_a_record_names_the_request_that_it_is_about() -> None:
    token = REQUEST_ID.set("abc")
    assert written(record("slow"))["request_id"] == "abc"
    REQUEST_ID.reset(token)
    assert "request_id" not in written(record("slow"))


def test_fields_of_a_record_hide_none_of_the_others() -> None:
    made = record("done")
    made.fields = {"seconds": 0.5, "message": "another", "strange": object}
    line = written(made)
    assert (line["seconds"], line["message"]) == (0.5, "done")


def log_of(set_up: str, *said: str) -> list[str]:
    """Return what a process writes that sets its log up so, and then says all this."""
    code = f"import logging, warnings; from unifiedserve.observe.logs import *; {set_up}; {'; '.join(said)}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.splitlines()


SAID = (
    "logging.getLogger('a.b').warning('careful')",
    "logging.getLogger('a.b').info('by the way')",
    "logging.getLogger(ACCESS_LOGGER).info('a request')",
)


def test_text_is_as_it_was() -> None:
    assert log_of("log_of_server('text')", *SAID) == ["WARNING a.b: careful"]
    *_, line = log_of("log_of_worker('text', 'vision')", "logging.info('up')")
    assert line.endswith(" vision INFO up")


def test_a_line_a_request_is_asked_for() -> None:
    assert log_of("log_of_server('text', access_log=True)", *SAID) == [
        "WARNING a.b: careful",
        "INFO unifiedserve.access: a request",
    ]


def test_all_lines_are_json_then_also_warnings() -> None:
    lines = log_of("log_of_server('json')", *SAID, "warnings.warn('old')")
    parsed = [json.loads(line) for line in lines]
    assert [(line["logger"], line["instance"]) for line in parsed] == [("a.b", "server"), ("py.warnings", "server")]
    (line,) = log_of("log_of_worker('json', 'vision')", "logging.info('up')")
    assert (json.loads(line)["instance"], json.loads(line)["message"]) == ("vision", "up")
