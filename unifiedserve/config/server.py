"""Choose who may ask, and how the daemon answers and reports."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Choose who may ask, and how the daemon answers and reports."""

    host: Annotated[
        str, Meta(description="The address to listen on. 0.0.0.0 lets other machines in: set API keys then")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="The port to listen on. 0: any free port")] = 8000
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="A host name that requests may address the server by, such as example.com or *.example.com. "
            "May be repeated. Default: only its own names if it listens on loopback, else any name"
        ),
    ] = ()
    api_key_file: Annotated[
        str,
        Meta(
            description="A file of API keys, each on a line as KEY or NAME KEY; SIGHUP makes the server read it "
            "again. The variable UNIFIEDSERVE_API_KEYS may hold more keys. Without any key, everybody "
            "who reaches the server may use it"
        ),
    ] = ""
    requests_per_minute: Annotated[
        int,
        Meta(
            ge=0,
            description="The most requests per minute of one key, or of one address if there are no keys. 0: no limit",
        ),
    ] = 0
    requests_at_once: Annotated[
        int,
        Meta(
            ge=0,
            description="The most simultaneous requests of one key, or of one address if there are no keys. 0: no "
            "limit",
        ),
    ] = 0
    cors_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="An origin whose web pages may call the API from a browser, such as https://example.com. "
            "May be repeated. Default: none"
        ),
    ] = ()
    ssl_certfile: Annotated[
        str, Meta(description="A PEM file of certificates, to serve HTTPS; needs --ssl-keyfile. Empty: HTTP")
    ] = ""
    ssl_keyfile: Annotated[
        str, Meta(description="A PEM file of the certificate's private key; needs --ssl-certfile")
    ] = ""
    drain_timeout: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds that running requests have to finish after SIGTERM or Ctrl-C; new requests are "
            "refused meanwhile",
        ),
    ] = 10.0
    max_body_mib: Annotated[
        int,
        Meta(
            ge=1,
            description="The largest request body in MiB, images and videos in base64 included. Upload larger media "
            "with /v1/files",
        ),
    ] = 64
    body_timeout: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds in which the body of a request or an upload must arrive; one that makes no "
            "progress is ended sooner",
        ),
    ] = 300.0
    response_store_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory in MiB for stored responses (POST /v1/responses), which clients may get again or go on "
            "from; the least recently used make room. 0: none are stored",
        ),
    ] = 32
    response_store_seconds: Annotated[
        float, Meta(gt=0, description="Seconds that a response is stored after its last use")
    ] = 86400.0
    trace: Annotated[
        str,
        Meta(
            description="A file for a timeline of all stages in Chrome's trace format, written at shutdown; "
            "ui.perfetto.dev shows it. Empty: none"
        ),
    ] = ""
    log_format: Annotated[
        Literal["text", "json"],
        Meta(description="The format of the log on stderr. text: for people; json: one object a line, for programs"),
    ] = "text"
    access_log: Annotated[
        bool,
        Meta(
            description="Log one line for each HTTP request: caller, path, status, seconds and bytes, but no "
            "contents and no keys"
        ),
    ] = False
