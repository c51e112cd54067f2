"""The engine on a device, seen from outside: answers while workers are killed, and the time that stages take."""

import os
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from bench.gpu.figures import Figures
from bench.gpu.machine import carried_clip
from bench.gpu.partner import Partner, outcome
from bench.gpu.served import Served, served
from bench.gpu.shapes import make_folder

CLIP, QUESTION = "shapes-motion.mp4", "What happens?"
STAGES = ("vision", "encode", "prefill", "decode")
REQUESTS, AT_ONCE = 32, 16
NO_CACHES = ("--no-prefix-cache", "--visual-cache-mib", "0")
RECOVERY = 60.0  # seconds

Strike = Callable[[Served, str], None]  # of a daemon, the worker of that name


def kill_workers(figures: Figures, device: str) -> None:
    """Kill each worker with SIGKILL while requests run: all get the answer that came before, no page stays in use."""
    _strike(figures, device, _kill, 1)


def kill_often(figures: Figures, device: str) -> None:
    """Do that until at least twenty have been killed."""
    _strike(figures, device, _kill, 7)


def fault_often(figures: Figures, device: str) -> None:
    """Let a stranger among the engine's clients of MPS access memory that is not there, which ends all of them."""

    def fault(daemon: Served, name: str) -> None:
        pipes = [folder / "pipe" for folder in Path(tempfile.gettempdir()).glob("unifiedserve-mps-*")]
        with Partner("bench.gpu.gpu_client:GpuClient", {"CUDA_MPS_PIPE_DIRECTORY": str(pipes[0])}) as stranger:
            stranger.start()
            outcome(stranger.fault)

    _strike(figures, device, fault, 1, "--share", "mps")


def _kill(daemon: Served, name: str) -> None:
    os.kill(daemon.workers()[name], signal.SIGKILL)


def _strike(figures: Figures, device: str, strike: Strike, rounds: int, *options: str) -> None:
    """Strike each worker of a daemon under load, and again of a new one: one gives up where workers die too often."""
    rows: list[dict[str, Any]] = []
    for _ in range(rounds):
        arguments = ("--dtype", "float32", *NO_CACHES, *options)
        with served("", device, *arguments) as daemon, ThreadPoolExecutor(AT_ONCE) as threads:
            clip = daemon.upload(carried_clip(CLIP))
            expected = daemon.ask(QUESTION, clip)["text"]
            names = [name for name in daemon.workers() if any(stage in name for stage in STAGES)]
            figures.add(workers=names)
            for name in names:
                rows.append(_under_load(daemon, clip, expected, threads, strike, name))
                figures.add(kills=rows)
    if bad := [row["worker"] for row in rows if row["other"] or row["healthy_after_s"] is None or row["pages_in_use"]]:
        raise RuntimeError(f"requests or pages were lost when these were struck: {', '.join(bad)}")
    if not rows:
        raise RuntimeError("no worker was found below the daemon")


def _under_load(
    daemon: Served, clip: str, expected: str, threads: ThreadPoolExecutor, strike: Strike, name: str
) -> dict[str, Any]:
    """Strike a worker while requests run; return what became of them and of the daemon."""
    waiting = [threads.submit(daemon.ask, QUESTION, clip) for _ in range(REQUESTS)]
    _, running = wait(waiting, return_when=FIRST_COMPLETED)
    start = time.perf_counter()
    strike(daemon, name)
    answers = [_text(answer) for answer in waiting]
    return {
        "worker": name,
        "not_answered_yet": len(running),
        "same": answers.count(expected),
        "other": [answer for answer in answers if answer != expected],
        "all_answered_s": time.perf_counter() - start,
        "healthy_after_s": _seconds_to_health(daemon),
        "pages_in_use": sum(daemon.used_pages().values()),
    }


def stage_times(figures: Figures, device: str) -> None:
    """Ask about a clip, cold and warm, and add up each stage's time from the request's own timeline."""
    with served("", device) as daemon:
        clip = daemon.upload(carried_clip(CLIP))
        for name, question in (("cold", QUESTION), ("warm", "What is to be seen?")):
            answer = daemon.ask(question, clip)
            figures.add(**{name: _stages(daemon, answer)})


def dummy(figures: Figures, device: str, shape: str) -> None:
    """Serve a model of a published shape with weights made up, and ask about clips, 64 frames each, nothing cached."""
    folder = make_folder(Path(shape), shape)
    start = time.perf_counter()
    with served(folder, device, "--load-format", "dummy", "--dtype", "bfloat16", *NO_CACHES) as daemon:
        figures.add(ready_s=time.perf_counter() - start)
        small, large = (daemon.upload(carried_clip(name)) for name in ("telescope.mp4", "large.mp4"))
        for number, (clip, frames) in enumerate([(small, 64)] * 3 + [(large, 32)] * 3):
            answer = daemon.ask(QUESTION, clip, frames=frames, tokens=128)
            figures.add(**{f"question {number}": _stages(daemon, answer)})


def _stages(daemon: Served, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer's figures, and of each kind of event how often it was, for how long, and the longest one."""
    spans: dict[str, list[float]] = defaultdict(list)
    for event in daemon.trace(answer["id"]):
        if event.get("ph") == "X":
            spans[f"{event['cat']}_{event['name']}"].append(event["dur"] / 1e3)  # vision's are called decode, too
    found: dict[str, Any] = {key: answer[key] for key in ("seconds", "prompt_tokens", "tokens")}
    for name, durations in spans.items():
        found |= {f"{name}_ms": sum(durations), f"{name}_times": len(durations), f"{name}_longest_ms": max(durations)}
    return found


def _text(answer: Future[dict[str, Any]]) -> str:
    try:
        return str(answer.result()["text"])
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def _seconds_to_health(daemon: Served) -> float | None:
    start = time.perf_counter()
    while not daemon.is_healthy():
        if time.perf_counter() - start > RECOVERY:
            return None
        time.sleep(0.1)
    return time.perf_counter() - start
