"""Log a line a record, as text or JSON, with the request's name."""

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["text", "json"]

#: The id of the HTTP request that is being answered, for the log.
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
#: The logger of a line a request.
ACCESS_LOGGER = "unifiedserve.access"

_SERVER = "server"
_SERVER_TEXT = "%(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Make a JSON object of a record. The record's `fields` (in `extra`) are further fields of it."""

    def __init__(self, instance: str) -> None:
        super().__init__()
        self._instance = instance

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in one line of ASCII: a reader that splits lines finds one a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname,
            "logger": record.name,
            "instance": self._instance,
            "message": record.getMessage(),
        }
        if (id := REQUEST_ID.get()) is not None:
            line["request_id"] = id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}) | line, default=str)


def log_of_server(log_format: LogFormat, *, access_log: bool = False) -> None:
    """Log warnings of this process to stderr, and with `access_log` a line a request."""
    _log_to_stderr(log_format, _SERVER, _SERVER_TEXT, logging.WARNING)
    if access_log:
        logging.getLogger(ACCESS_LOGGER).setLevel(logging.INFO)


def log_of_worker(log_format: LogFormat, instance: str) -> None:
    """Log what this process, a worker, has to say to stderr."""
    _log_to_stderr(log_format, instance, f"%(asctime)s {instance} %(levelname)s %(message)s", logging.INFO)


def _log_to_stderr(log_format: LogFormat, instance: str, text: str, level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(instance) if log_format == "json" else logging.Formatter(text))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(log_format == "json")  # they are several lines of text otherwise
