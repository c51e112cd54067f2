"""Who is let in: with keys, under which names, from which pages, how often, and what belongs to whom."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest
from callers import ANNE, BEN, bearer
from hypothesis import given
from hypothesis import strategies as st
from scripted import ScriptedEngine
from scripted_app import connected, listening, question
from starlette.datastructures import Headers

from unifiedserve.config import API_KEYS, EngineConfig
from unifiedserve.errors import ConfigError, RequestError
from unifiedserve.server.access.hosts import Hosts, is_loopback
from unifiedserve.server.access.keys import COOKIE, Keys, shown_digest
from unifiedserve.server.access.limits import Limits
from unifiedserve.server.daemon import check_certificate

PATH = "/v1/chat/completions"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"# who may\nanne {ANNE}\n\nben {BEN}\n")
    return path


@pytest.fixture
async def guarded(key_file: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with connected(ScriptedEngine(api_key_file=str(key_file))) as client:
        yield client


# Keys


async def test_only_who_has_a_key_is_served(guarded: httpx.AsyncClient) -> None:
    for headers in ({}, bearer("sk-nobody-0123456789"), bearer(""), {"Authorization": ANNE}, {"Cookie": "a=b; ;=;"}):
        response = await guarded.post(PATH, json=question(), headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
        assert "sk-nobody" not in response.text
    for headers in (bearer(ANNE), bearer(BEN), {"Cookie": f"other=1; {COOKIE}={ANNE}"}):
        assert (await guarded.post(PATH, json=question(), headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/metrics",
        "/version",
        "/debug/trace",
        "/v1/events",
        "/docs",
        "/openapi.json",
        "/playground/settings",
    ],
)
async def test_what_tells_something_needs_a_key(guarded: httpx.AsyncClient, path: str) -> None:
    assert (await guarded.get(path)).status_code == 401


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_may_ask_by_any_name(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path, headers={"Host": "10.0.0.7:8000"})).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/ready", "/", "/playground/app.js"])
async def test_probes_and_the_page_need_none(guarded: httpx.AsyncClient, path: str) -> None:
    assert (await guarded.get(path)).status_code == 200


async def test_openais_client_sends_its_key(key_file: Path) -> None:
    async with listening(ScriptedEngine(api_key_file=str(key_file))) as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=ANNE, max_retries=0) as client:
            assert (await client.models.list()).data[0].id == "scripted"
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()


def name_of(keys: Keys, headers: dict[str, str]) -> str | None:
    shown = shown_digest(Headers(headers))
    assert shown is not None
    return keys.name_of(shown)


def test_keys_come_of_the_environment_too(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEYS, "0123456789abcdef, carl fedcba9876543210")
    keys = Keys(str(key_file))
    assert name_of(keys, bearer("fedcba9876543210")) == "carl"
    assert name_of(keys, bearer(BEN)) == "ben"
    assert name_of(keys, bearer("0123456789abcdef"))
    assert not name_of(Keys(str(key_file)), bearer("carl"))


def test_keys_are_read_again_and_stay_if_the_new_ones_are_wrong(key_file: Path) -> None:
    keys = Keys(str(key_file))
    key_file.write_text(f"anne {ANNE}\n")
    keys.reload()
    assert name_of(keys, bearer(BEN)) is None
    key_file.write_text("short\n")
    with pytest.raises(ConfigError, match=r"keys:1: .* at least 16"):
        keys.reload()
    assert name_of(keys, bearer(ANNE)) == "anne"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no keys"),
        ("# none\n", "no keys"),
        ("a b 0123456789abcdef", "a name and a key"),
        ("ключключключключ", "ASCII"),
    ],
)
def test_bad_key_files_are_told(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        Keys(str(tmp_path / "keys"))
    with pytest.raises(ConfigError, match="No such file"):
        Keys(str(tmp_path / "missing"))


# What belongs to a key


async def test_files_are_for_the_key_that_they_came_with(guarded: httpx.AsyncClient) -> None:
    form = {"data": {"purpose": "vision"}, "files": {"file": b"image"}}
    id = (await guarded.post("/v1/files", headers=bearer(ANNE), **form)).json()["id"]  # type: ignore[arg-type]
    part = {"type": "image_url", "image_url": {"url": id}}
    asked = {"messages": [{"role": "user", "content": [part]}]}
    stranger = await guarded.post(PATH, json=asked, headers=bearer(BEN))
    assert (stranger.status_code, stranger.json()["error"]["code"]) == (404, "file_not_found")
    assert (await guarded.delete(f"/v1/files/{id}", headers=bearer(BEN))).status_code == 404
    assert (await guarded.post(PATH, json=asked, headers=bearer(ANNE))).status_code == 200


async def test_who_has_most_files_makes_room_first(key_file: Path) -> None:
    async with connected(ScriptedEngine(api_key_file=str(key_file), max_media_mib=1)) as client:

        async def upload(key: str) -> str:
            form = {"data": {"purpose": "vision"}, "files": {"file": bytes(1 << 20)}}
            response = await client.post("/v1/files", headers=bearer(key), **form)  # type: ignore[arg-type]
            return str(response.json()["id"])

        own = await upload(ANNE)
        for _ in range(10):
            await upload(BEN)
        assert (await client.delete(f"/v1/files/{own}", headers=bearer(ANNE))).status_code == 200


async def test_a_viewer_of_the_same_name_with_another_key_is_another(key_file: Path) -> None:
    engine = ScriptedEngine(api_key_file=str(key_file))
    async with connected(engine) as client:
        for key in (ANNE, BEN):
            await client.post(PATH, json=question(), headers={**bearer(key), "X-Viewer": "page"})
    assert [request.viewer for request in engine.requests] == ["anne/page", "ben/page"]


# Names of the server, and pages of others


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("elsewhere.example", 403),
        ("127.0.0.1.elsewhere.example:8000", 403),
        ("localhost.elsewhere.example", 403),
        ("", 403),
    ],
)
async def test_names_that_others_point_at_it_are_refused(client: httpx.AsyncClient, host: str, status: int) -> None:
    response = await client.get("/v1/models", headers={"Host": host})
    assert response.status_code == status
    if status == 403:
        assert response.json()["error"]["code"] == "forbidden_host"


def test_names_may_be_given() -> None:
    hosts = Hosts("127.0.0.1", ["api.example.com", "*.example.org"])
    for host in ("api.example.com", "a.example.org:443", "A.B.EXAMPLE.ORG"):
        hosts.check(host)
    for host in ("localhost", "example.org", "badexample.org", "api.example.com.evil.example"):
        with pytest.raises(RequestError, match="--allowed-hosts"):
            hosts.check(host)


def test_beyond_loopback_any_name_is_right_unless_some_are_given() -> None:
    assert [is_loopback(host) for host in ("127.8.8.8", "::1", "localhost")] == [True] * 3
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "")] == [False] * 3
    Hosts("0.0.0.0").check("anything.example")


async def test_pages_of_other_origins_need_to_be_allowed() -> None:
    origin = {"Origin": "https://app.example"}
    async with connected(ScriptedEngine()) as client:
        response = await client.post(PATH, json=question(), headers=origin)
        assert "access-control-allow-origin" not in response.headers
    async with connected(ScriptedEngine(cors_origins=("https://app.example",))) as client:
        asked = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        assert (await client.options(PATH, headers=asked)).status_code == 200
        response = await client.post(PATH, json=question(), headers=origin)
        assert response.headers["access-control-allow-origin"] == "https://app.example"
        form = {"data": {"purpose": "vision"}, "files": {"file": b"x"}}
        assert (await client.post("/v1/files", headers=origin, **form)).status_code == 200  # type: ignore[arg-type]


# How much


async def test_requests_a_minute() -> None:
    async with connected(ScriptedEngine(requests_per_minute=3)) as client:
        statuses = [(await client.get("/v1/models")).status_code for _ in range(3)]
        refused = await client.get("/v1/models")
        assert (statuses, refused.status_code) == ([200] * 3, 429)
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert (await client.get("/health")).status_code == 200


async def test_requests_at_once_are_those_of_a_key(key_file: Path) -> None:
    engine = ScriptedEngine(api_key_file=str(key_file), requests_at_once=1)
    async with connected(engine) as client:
        going_on = asyncio.Event()
        script = engine.script

        async def wait(request: object) -> AsyncIterator[object]:
            await going_on.wait()
            async for delta in script(request):  # type: ignore[arg-type]
                yield delta

        engine.script = wait  # type: ignore[assignment]
        first = asyncio.create_task(client.post(PATH, json=question(), headers=bearer(ANNE)))
        await engine.busy.wait()
        assert (await client.get("/v1/models", headers=bearer(ANNE))).status_code == 429
        assert (await client.get("/v1/models", headers=bearer(BEN))).status_code == 200
        going_on.set()
        assert (await first).status_code == 200
        assert (await client.get("/v1/models", headers=bearer(ANNE))).status_code == 200


@given(st.integers(1, 100), st.lists(st.floats(0, 30), max_size=200))
def test_no_minute_has_more_than_twice_the_rate(a_minute: int, pauses: list[float]) -> None:
    now = 0.0
    limits = Limits(a_minute, 0, lambda: now)
    taken: list[float] = []
    for pause in pauses:
        now += pause
        try:
            with limits.entered("somebody"):
                taken.append(now)
        except RequestError as error:
            now += error.retry_after or 0
            with limits.entered("somebody"):  # as it said
                taken.append(now)
    for time in taken:
        assert sum(time <= other < time + 60 for other in taken) <= 2 * a_minute


# HTTPS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    try:
        subprocess.run([*command, "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    return str(folder / "cert"), str(folder / "key")


async def test_https(certificate: tuple[str, str]) -> None:
    cert, key = certificate
    async with listening(ScriptedEngine(ssl_certfile=cert, ssl_keyfile=key)) as url:
        trusting = ssl.create_default_context(cafile=cert)
        async with httpx.AsyncClient(base_url=url.replace("http:", "https:"), verify=trusting) as client:
            assert (await client.post(PATH, json=question())).status_code == 200


def test_bad_certificates_are_told(certificate: tuple[str, str], tmp_path: Path) -> None:
    cert, key = certificate
    check_certificate(EngineConfig.of(ssl_certfile=cert, ssl_keyfile=key))
    for half in ({"ssl_certfile": cert}, {"ssl_keyfile": key}):
        with pytest.raises(ConfigError, match="go together"):
            check_certificate(EngineConfig.of(**half))
    for wrong in (str(tmp_path / "missing"), key):
        with pytest.raises(ConfigError, match="--ssl-certfile"):
            check_certificate(EngineConfig.of(ssl_certfile=wrong, ssl_keyfile=key))
