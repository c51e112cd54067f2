"""Whether an answer is a proper one: what was asked for, or an API's error object with a right status."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from bench.campaign.cases import Seen, ViolationError

FINE = {200, 400, 401, 403, 404, 405, 408, 413, 415, 429, 431}
BUSY = {503, 504}  # proper where the error says so, and counted
LONGEST_ERROR = 8192  # bytes
_ERROR_FIELDS = {"message", "type", "param", "code"}
_ANTHROPIC_ERROR_FIELDS = {"message", "type"}


def judge(status: int, headers: Mapping[str, str], body: bytes, expect: Collection[int] = ()) -> Seen:
    """Return what was seen; raise ViolationError for an answer that must not be."""
    said = body[:300].decode(errors="replace")
    if expect and status not in expect:
        raise ViolationError(f"{status} in place of {sorted(expect)}: {said}")
    if status not in {*FINE, *BUSY, *expect}:
        raise ViolationError(f"status {status}: {said}")
    label = headers.get("content-type", "").partition(";")[0]
    if status != 200:
        _check_error(label, body)
        return Seen(str(status), _reason(body))
    if label == "application/json":
        _parsed(body)
    elif label == "text/event-stream":
        return Seen("200", _check_events(body))
    return Seen("200")


def _check_error(label: str, body: bytes) -> None:
    if label != "application/json":
        raise ViolationError(f"an error labelled {label or 'nothing'}: {body[:200]!r}")
    if len(body) > LONGEST_ERROR:
        raise ViolationError(f"an error of {len(body)} bytes: {body[:200]!r}")
    value = _parsed(body)
    if not isinstance(value, dict) or not _is_error(value):
        raise ViolationError(f"an error of another shape: {body[:200]!r}")
    if not value["error"]["message"] or "Traceback" in value["error"]["message"]:
        raise ViolationError(f"an error that says nothing, or too much: {body[:200]!r}")


def _is_error(value: Mapping[str, Any]) -> bool:
    """Tell whether it is OpenAI's error object, or Anthropic's."""
    if value.get("type") == "error":
        return set(value) == {"type", "error"} and set(value["error"]) == _ANTHROPIC_ERROR_FIELDS
    return set(value) == {"error"} and set(value["error"]) == _ERROR_FIELDS


def _check_events(body: bytes) -> str:
    """Check the events of a stream, which may end anywhere; return the code of the error that ended it."""
    for line in body.split(b"\n"):
        if not line.startswith(b"data: {") or not line.endswith(b"}"):
            continue
        event: dict[str, Any] = _parsed(line.removeprefix(b"data: "))
        if error := event.get("error"):
            if "Internal error" in error["message"]:
                raise ViolationError(f"a stream ended with: {error}")
            return str(error.get("code") or error["type"])
    return ""


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise ViolationError(f"no JSON: {body[:200]!r}") from None


def _reason(body: bytes) -> str:
    return str(json.loads(body)["error"]["message"])[:160]
