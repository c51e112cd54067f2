"""The servers: each gets as much of the machine as it can use, and is stopped with all that it started."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import install_llamacpp
import psutil
from contestants import Contestant
from install_vllm import has_flashcodec, is_installed, preloads, python_of
from memory import family
from rows import AT_A_TIME

from unifiedserve.cli.daemon import serve_command

CONTEXT = 16_384
SLOTS, SLOT_TOKENS = max(AT_A_TIME), 1024
KV_CACHE_GIB = 2
START_SECONDS = 600
STOP_SECONDS = 20
LAST_SECONDS = 2
LONG_VIDEOS = json.dumps({"max_pixels": 28 * 28 * 1400})
FLASHCODEC = json.dumps({"video": {"backend": "flashcodec"}})


class StartError(Exception):
    """The reason why a server is not there."""


@dataclass(frozen=True)
class Server:
    """A server's command line without its port, and its environment."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


def ours(contestant: Contestant, model: Path, media: Path, options: Sequence[str]) -> Server:
    """Return our server, without caches as the other, for rounds repeat what was asked before, and without drafts:
    random weights repeat themselves more than texts do.
    """
    python, *command = serve_command(model, "--placement", contestant.kind)
    if contestant.python:  # whose own packages are to be found, not those of the folder that this runs in
        python, command = contestant.python, ["-P", *command]
    limits = ["--max-model-len", str(CONTEXT), "--kv-cache-mib", str(KV_CACHE_GIB * 1024)]
    no_caches = ["--no-prefix-cache", "--visual-cache-mib", "0"]
    no_drafts = ["--speculative-tokens", "0"]
    media_path = ["--allowed-local-media-path", str(media)]
    return Server([python, *command, *limits, *no_caches, *no_drafts, *media_path, *options, *contestant.options])


def vllm(contestant: Contestant, model: Path, media: Path, folder: Path, long_videos: bool = False) -> Server:
    """Return vLLM's: all cores, small chunks so that streams wait less for prefill, no caches of prompts or media.

    With `long_videos` its encoder has room for 9,800 visual tokens at a time instead of what the largest image makes of
    14 frames (2,240), and so for one such video, or several shorter ones at once. Raises StartError if it, or with
    "vllm_flashcodec" our decoder beside it, is not installed in `folder`.
    """
    if not is_installed(folder):
        raise StartError(f"not installed in {folder}: python bench/serve_cpu/install_vllm.py")
    ours = contestant.kind == "vllm_flashcodec"
    if ours and not has_flashcodec(folder):
        raise StartError(f"no FlashCodec in {folder}: python bench/serve_cpu/install_vllm.py --flashcodec")
    command = [str(python_of(folder)), "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
    limits = ["--max-model-len", str(CONTEXT), "--dtype", "bfloat16"]
    chunks = ["--enable-chunked-prefill", "--max-num-batched-tokens", "512"]
    no_caches = ["--no-enable-prefix-caching", "--mm-processor-cache-gb", "0"]
    requests = ["--allowed-local-media-path", str(media), "--trust-request-mm-kwargs"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
        "LD_PRELOAD": ":".join(map(str, preloads(folder))),
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(KV_CACHE_GIB),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    room = ["--mm-processor-kwargs", LONG_VIDEOS, "--skip-mm-profiling"] if long_videos else []
    decoder = ["--media-io-kwargs", FLASHCODEC] if ours else []
    return Server(
        [*command, *limits, *chunks, *no_caches, *requests, *room, *decoder, *contestant.options], environment
    )


def llamacpp(contestant: Contestant, file: Path, tower: Path, folder: Path) -> Server:
    """Return llama.cpp's: all cores, a cache of its own for each stream, nothing kept from one request to another.

    Its slots' caches are cleared, and so in memory, from the start: they are no larger than the requests need.
    Raises StartError if it is not built in `folder`.
    """
    if not install_llamacpp.is_installed(folder):
        raise StartError(f"not built in {folder}: python bench/serve_cpu/install_llamacpp.py")
    command = [str(install_llamacpp.program(folder, "llama-server")), "--model", str(file), "--mmproj", str(tower)]
    threads = ["--threads", str(os.cpu_count()), "--threads-batch", str(os.cpu_count())]
    slots = ["--parallel", str(SLOTS), "--no-kv-unified", "--ctx-size", str(SLOTS * SLOT_TOKENS)]
    no_caches = ["--no-cache-prompt", "--cache-ram", "0"]
    sampling = ["--samplers", "top_k", "--top-k", "1"]  # the likeliest token, without a look at all others again
    media_path = ["--media-path", "/"]  # which paths in URLs are relative to
    options = [*threads, *slots, *no_caches, *sampling, *media_path, "--no-ui", *contestant.options]
    return Server([*command, *options])


@contextlib.contextmanager
def running(server: Server, log: Path) -> Iterator[tuple[str, int]]:
    """Start the server, yield its URL and process id once it is healthy, and stop it on every way out."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*server.command, "--port", str(port)],
            env=server.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        await_health(url, process)
        yield url, process.pid
    finally:
        stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def await_health(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StartError(f"ended with code {process.returncode}")
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health").is_success:
                return
        time.sleep(0.2)
    raise StartError(f"not healthy after {START_SECONDS} s")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, then end what is left of it and of its children, whatever session they are in."""
    members = family(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    psutil.wait_procs(members, timeout=LAST_SECONDS)
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
    psutil.wait_procs(members, timeout=LAST_SECONDS)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the program like Ctrl-C, so that no server stays behind."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handlers: dict[int, Callable[[int, object], None]] = {signal.SIGTERM: end, signal.SIGHUP: end}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
