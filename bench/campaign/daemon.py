"""The daemon that is tried: started for the campaign, looked at, and asked afterwards whether it is well."""

import asyncio
import base64
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import httpx

from bench.campaign.asking import CHAT, chat
from bench.campaign.cases import DEADLINE, Target
from unifiedserve import samples
from unifiedserve.cli.daemon import READY, Daemon, serve_command

_END_SECONDS = 60
_USED = re.compile(r'^unifiedserve:buffer_used_pages{buffer="(\w+)",memory="(\w+)"} (\S+)$', re.MULTILINE)
_RESTARTS = re.compile(r"^unifiedserve:worker_restarts_total (\S+)$", re.MULTILINE)
_DRAIN_SECONDS = 30
_QUESTION = "Tell me the color of the star."
_SAMPLE = "shapes-motion.mp4"


@contextlib.contextmanager
def served(log: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """Have a daemon with these options on a free port, whose log goes to a file.

    Raises RuntimeError if it does not start or end well.
    """
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*serve_command(), *options, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(environment or {})},
        )
    try:
        assert process.stdout is not None
        ready = READY.match(process.stdout.readline())
        if ready is None:
            raise RuntimeError(f"the daemon does not start: {log.read_text()[-2000:]}")
        yield Daemon(ready[1], process)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the daemon ended with code {process.returncode}: {log.read_text()[-2000:]}")


@contextlib.asynccontextmanager
async def target_at(url: str, key: str = "") -> AsyncIterator[Target]:
    """Have the server at a URL as a target."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=8)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(
        base_url=url, timeout=DEADLINE, limits=limits, headers=headers, trust_env=False
    ) as http:
        (model,) = (await http.get("/v1/models")).json()["data"]
        parsed = httpx.URL(url)
        assert parsed.port is not None
        yield Target(http, parsed.host, parsed.port, model["id"], model["max_model_len"], key)


async def used_pages(target: Target) -> dict[str, float]:
    """Return the pages that are in use, by buffer and memory."""
    text = (await target.http.get("/metrics")).text
    return {f"{buffer} of {memory}": float(pages) for buffer, memory, pages in _USED.findall(text)}


async def restarts(target: Target) -> float:
    """Return how often workers were restarted."""
    found = _RESTARTS.search((await target.http.get("/metrics")).text)
    return float(found[1]) if found else 0.0


async def drained(target: Target) -> dict[str, float]:
    """Return the buffers that do not become empty in time."""
    used: dict[str, float] = {}
    for _ in range(_DRAIN_SECONDS):
        used = {buffer: pages for buffer, pages in (await used_pages(target)).items() if pages}
        if not used:
            break
        await asyncio.sleep(1)
    return used


async def answer_about_sample(target: Target) -> str:
    """Return the answer to a question about a sample video, the likeliest one."""
    data = (Path(samples.__file__).parent / _SAMPLE).read_bytes()
    url = f"data:video/mp4;base64,{base64.b64encode(data).decode()}"
    content = [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": _QUESTION}]
    body = chat(content, max_tokens=32, temperature=0, deadline=60, media_io_kwargs={"video": {"num_frames": 16}})
    response = await target.http.post(CHAT, json=body)
    return str(response.json()["choices"][0]["message"]["content"]) if response.is_success else response.text
