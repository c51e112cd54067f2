"""The OpenAPI document held to what the server does, by schemathesis."""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
_ENDLESS = "/v1/events"
_REQUEST_SECONDS = 120  # an answer may be as long as the context
_SETTINGS = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503, 504]
"""


class Found(msgspec.Struct):
    """What it came to: the cases, and what is wrong."""

    cases: int
    violations: list[str]


async def run(url: str, seed: int, examples: int, seconds: int) -> Found:
    """Run schemathesis against the server: so many examples an operation, for so long at most."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        (Path(folder) / "schemathesis.toml").write_text(_SETTINGS)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--exclude-path", _ENDLESS,
            "--seed", str(seed), "-n", str(examples), "--no-shrink", "--checks", CHECKS, "--continue-on-failure",
            "--request-timeout", str(_REQUEST_SECONDS), "--request-retries", "1", "--no-color",
            "--report", "json", "--report-json-path", str(report),
            cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        said = asyncio.ensure_future(process.stdout.read())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
            return Found(0, [f"schemathesis did not end within {seconds} s"])
        if not report.exists():
            return Found(0, [f"schemathesis told nothing: {(await said).decode(errors='replace')[-500:]}"])
        return _read(msgspec.json.decode(report.read_bytes()))


def _read(report: dict[str, Any]) -> Found:
    failures = [_told(failure) for failure in report["failures"]]
    errors = [f"{error['title']}, {error['count']} times" for error in report["errors"]]
    return Found(report["test_cases"]["generated"], failures + errors)


def _told(failure: dict[str, Any]) -> str:
    return msgspec.json.encode(failure).decode()[:1000]
