"""Our placements, vLLM's CPU build, llama.cpp, OpenVINO GenAI and transformers, side by side.

They have the same weights and requests, in the same order.

python bench/serve_cpu/install_vllm.py
python bench/serve_cpu/install_llamacpp.py
python bench/serve_cpu/install_openvino.py
python bench/serve_cpu/run.py
"""

import asyncio
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import bandwidth
import checkpoint
import contestants
import course
import footage
import gguf_checkpoint
import httpx
import install_llamacpp
import install_openvino
import install_vllm
import language_gguf
import quantized
import rows
import servers
import typer
import workloads
from client import Client, RequestError
from contestants import GGUF, LLAMACPP, OURS, TITLES, Contestant
from contestants import USUAL as USUAL_SERVERS
from prompts import Prompts
from report import RESULTS, write
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from servers import Server, StartError

from unifiedserve.doctor.machine import describe_machine
from unifiedserve.models.tiny import make_checkpoint

FOLDER = checkpoint.DEFAULT_FOLDER.parent
OFFLINE = {
    "generate": ["decode", "text8", "images", "video", "memory"],
    "continuous": ["decode", "text8"],
    "llamacpp_batched": ["streams"],
    "openvino": ["decode", "prompt", "streams"],
}
#: what each kind is measured with, where that is not all
ABLE = OFFLINE | {"llamacpp": ["decode", "prompt", "streams", "text8", "images", "memory_text"]}
#: fields that requests have for one kind alone
MORE_FIELDS = {"llamacpp": {"timings_per_token": True}}
WORKLOAD_SECONDS = 600
NOTES = {
    "generate": ["a batch runs to its end before the next one starts, so there are no streams for videos to disturb"],
    "continuous": ["transformers offers it for text alone (`ModelManager` calls this family a VLM and falls back)"],
    "llamacpp": ["its videos are frames at a rate of its own, other ones than are asked for, so none are measured"],
    "llamacpp_batched": ["no server: texts of one length in step, no sampling, no HTTP"],
    "openvino": ["no server; it reads the language model alone, as Qwen2's, and has keys and values in 8 bits"],
}

DEFAULT = "shared,monolithic,vllm,generate,continuous"
USUAL = ",".join(name for name in workloads.WORKLOADS if name not in workloads.LONG)
VARIANTS = "KIND[+WEIGHTS][@PYTHON][:OPTIONS], as in shared:--no-overlap or vllm+int8"

Report = dict[str, Any]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The settings that are the same for all rounds."""

    model: Path
    media: footage.Media
    folder: Path  # folder of the media files
    names: list[str]  # names of the workloads
    sizes: course.Sizes
    quick: bool
    vllm: Path
    llamacpp: Path
    openvino: Path
    options: list[str]
    logs: Path

    def server(self, contestant: Contestant) -> Server:
        """Return a server; raises StartError if it is not installed, or its weights cannot be made."""
        model = self.model_of(contestant)
        if contestant.kind in OURS:
            return servers.ours(contestant, model, self.folder, self.options)
        if contestant.kind in LLAMACPP:
            return servers.llamacpp(contestant, model, gguf_checkpoint.tower_file(self.model), self.llamacpp)
        return servers.vllm(contestant, model, self.folder, self.vllm, bool(workloads.LONG & set(self.names)))

    def model_of(self, contestant: Contestant) -> Path:
        """Return the checkpoint or GGUF file that it serves; made if missing."""
        if contestant.kind in LLAMACPP or contestant.weights in GGUF:
            return self.gguf_file(contestant.weights or gguf_checkpoint.PLAIN)
        if not contestant.weights:
            return self.model
        folder = self.model.with_name(f"{self.model.name}-{contestant.weights}")
        made = (folder / "model.safetensors").exists()
        return folder if made else quantized.make(self.model, contestant.weights, folder)

    def gguf_file(self, kind: str) -> Path:
        if not install_llamacpp.is_installed(self.llamacpp):
            raise StartError(f"not built in {self.llamacpp}: python bench/serve_cpu/install_llamacpp.py")
        try:
            return gguf_checkpoint.model_file(self.model, self.llamacpp, kind)
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise StartError(f"no GGUF file of {kind}: {''.join(last)}") from error

    def workloads_of(self, contestant: Contestant) -> list[str]:
        return [workload for workload in self.names if workload in ABLE.get(contestant.kind, self.names)]

    def offline(self, contestant: Contestant) -> list[str]:
        """Return the command of one that needs no server; it prints a line for each workload."""
        quick = ["--quick"] if self.quick else []
        if contestant.kind == "openvino":
            return self.openvino_command(contestant)
        if contestant.kind in LLAMACPP:
            weights = ["--weights", contestant.weights] if contestant.weights else []
            script = Path(__file__).with_name("batched.py")
            return [sys.executable, str(script), str(self.llamacpp), str(self.model), *weights, *quick]
        script, names = Path(__file__).with_name("offline.py"), self.workloads_of(contestant)
        return [sys.executable, str(script), contestant.kind, str(self.model), str(self.folder), *names, *quick]

    def openvino_command(self, contestant: Contestant) -> list[str]:
        if not install_openvino.is_installed(self.openvino):
            raise StartError(f"not installed in {self.openvino}: python bench/serve_cpu/install_openvino.py")
        script = Path(__file__).with_name("with_openvino.py")
        file = language_gguf.language_file(self.gguf_file(contestant.weights or gguf_checkpoint.PLAIN))
        setup = {**asdict(self.sizes), "workloads": self.workloads_of(contestant), "at_a_time": rows.AT_A_TIME}
        return [str(install_openvino.python_of(self.openvino)), str(script), str(file), json.dumps(setup)]


def run_server(plan: Plan, contestant: Contestant, log: Path, tell: Tell) -> Report:
    """Start the server, run the workloads, stop it. What fails is in the report, with the place of the log."""
    found: Report = {}
    try:
        tell("starting")
        started = time.monotonic()
        with servers.running(plan.server(contestant), log) as (url, pid):
            found["start_seconds"] = time.monotonic() - started
            asyncio.run(run_workloads(plan, contestant, url, pid, found, tell))
    except (StartError, RequestError, httpx.HTTPError, ExceptionGroup) as error:
        found["failure"] = explain(error, log)
    return found


async def run_workloads(plan: Plan, contestant: Contestant, url: str, pid: int, found: Report, tell: Tell) -> None:
    names, more = plan.workloads_of(contestant), MORE_FIELDS.get(contestant.kind)
    async with httpx.AsyncClient(base_url=url) as http:
        model = (await http.get("/v1/models")).raise_for_status().json()["data"][0]["id"]
        requests = course.Course(Client(http, model, more), plan.media, Prompts(plan.model), plan.sizes, pid)
        tell("warming up")
        await workloads.warm_up(requests, names)
        for name in names:
            tell(name)
            try:
                async with asyncio.timeout(WORKLOAD_SECONDS):
                    found[name] = await workloads.WORKLOADS[name](requests)
            except Exception as error:  # whatever a server does wrong is told, and the next workload is tried
                found[name] = {"failure": explain(error, None)}


def run_offline(plan: Plan, contestant: Contestant, log: Path, tell: Tell) -> Report:
    """Run one without a server, in a process that prints a line for each workload."""
    found: Report = {}
    tell("starting")
    try:
        command = plan.offline(contestant)
    except StartError as error:
        return {"failure": str(error)}
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            found |= json.loads(line)
            tell(f"after {next(iter(json.loads(line)))}")
        if process.wait() != 0:
            found["failure"] = explain(StartError(f"ended with code {process.returncode}"), log)
    finally:
        servers.stop(process)
    return found


def explain(error: BaseException, log: Path | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error) or type(error).__name__
    return text if log is None or not log.exists() else f"{text}: see {log}"


def add_floor(found: Report, floor: float) -> None:
    if "tbt" in found.get("decode", {}):
        found["decode"]["over_floor"] = found["decode"]["tbt"] / floor


def versions(vllm: Path, llamacpp: Path, openvino: Path) -> dict[str, str]:
    found = {"python": platform.python_version()} | {name: metadata.version(name) for name in ("torch", "transformers")}
    if install_vllm.is_installed(vllm):
        found["vllm"] = install_vllm.VERSION
    if install_llamacpp.is_installed(llamacpp):
        found["llama.cpp of llama-cpp-python"] = install_llamacpp.VERSION
    if install_openvino.is_installed(openvino):
        found["OpenVINO GenAI"] = install_openvino.VERSION
    return found


def chosen(given: str, known: list[str], what: str) -> list[str]:
    names = given.split(",")
    if unknown := set(names) - set(known):
        raise typer.BadParameter(f"no {what} {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [name for name in known if name in names]


def contestants_of(given: str) -> list[Contestant]:
    try:
        return [contestants.read(text) for text in given.split(",")]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each server runs, in turn")] = 3,
    only: Annotated[str, typer.Option("--servers", help=f"Some of {','.join(TITLES)}, or {VARIANTS}")] = ",".join(
        USUAL_SERVERS
    ),
    some: Annotated[str, typer.Option("--workloads", help=f"Some of {','.join(workloads.WORKLOADS)}")] = USUAL,
    model: Annotated[Path, typer.Option(help="The checkpoint; made if missing")] = checkpoint.DEFAULT_FOLDER,
    vllm: Annotated[Path, typer.Option(help="Folder that install_vllm.py filled")] = install_vllm.DEFAULT_FOLDER,
    llamacpp: Annotated[Path, typer.Option(help="Folder that install_llamacpp.py filled")] = (
        install_llamacpp.DEFAULT_FOLDER
    ),
    openvino: Annotated[Path, typer.Option(help="Folder that install_openvino.py filled")] = (
        install_openvino.DEFAULT_FOLDER
    ),
    options: Annotated[str, typer.Option(help="More options for our daemon, as on a command line")] = "",
    folder: Annotated[Path, typer.Option(help="Keeps the videos and images, made if missing")] = FOLDER / "media",
    out: Annotated[Path, typer.Option(help="For serve-cpu.json, .md and the pictures")] = RESULTS,
    logs: Annotated[Path | None, typer.Option(help="Keeps the servers' logs; default: a new folder")] = None,
    quick: Annotated[bool, typer.Option(help="Tiny model and files, one round: to see that it runs")] = False,
) -> None:
    """Compare the servers."""
    console = Console(stderr=True)
    compared = contestants_of(only)
    wanted = chosen(some, list(workloads.WORKLOADS), "workload")
    logs = logs or Path(tempfile.mkdtemp(prefix="serve-cpu-"))
    for made in (logs, out):
        made.mkdir(parents=True, exist_ok=True)
    model = model.with_name("tiny") if quick else model
    if not (model / "model.safetensors").exists():
        (make_checkpoint if quick else checkpoint.make)(model)
    files = footage.ensure(folder, console, quick)
    sizes = course.QUICK if quick else course.Sizes()
    plan = Plan(model, files, folder, wanted, sizes, quick, vllm, llamacpp, openvino, shlex.split(options), logs)
    document: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "machine": describe_machine(),
        "load": os.getloadavg()[0],
        "versions": versions(vllm, llamacpp, openvino),
        "checkpoint": {"language_model_bytes": bandwidth.language_model_bytes(model)},
        "notes": NOTES,
        "rounds": [],
    }
    with servers.ended_by_signals(), progress_bar(console) as progress:
        run_rounds(plan, compared, 1 if quick else rounds, document, out, progress)
    write(document, out)
    console.print(f"written: {out / 'serve-cpu.md'}, .json and pictures; logs: {logs}")


def run_rounds(
    plan: Plan, compared: list[Contestant], rounds: int, document: dict[str, Any], out: Path, progress: Progress
) -> None:
    """Fill the document, which is saved after each server. A server that did not start is not tried again."""
    absent: dict[str, str] = {}
    total = rounds * sum(len(plan.workloads_of(one)) for one in compared)
    task = progress.add_task("", total=total)
    for number in range(1, rounds + 1):
        floor = document["checkpoint"]["language_model_bytes"] / (speed := bandwidth.read_bandwidth())
        document["rounds"].append({"bandwidth": speed, "servers": {}})
        for place, one in enumerate(compared, 1):
            label = f"round {number} of {rounds}, {one.title}"

            def tell(step: str, label: str = label) -> None:
                progress.update(task, description=f"{label}: {step}")

            if one.name in absent:
                continue
            log = plan.logs / f"{place}-{one.kind}-{number}.log"
            began = time.monotonic()
            found = (run_offline if one.kind in OFFLINE else run_server)(plan, one, log, tell)
            found["seconds"] = time.monotonic() - began
            if "failure" in found:
                progress.console.print(f"{label}: {found['failure']}", highlight=False)
                absent[one.name] = found["failure"]
            add_floor(found, floor)
            document["rounds"][-1]["servers"][one.name] = found
            save(document, out / "serve-cpu.json")
            progress.advance(task, len(plan.workloads_of(one)))


def progress_bar(console: Console) -> Progress:
    return Progress(
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def save(document: dict[str, Any], path: Path) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document) + "\n")
    partial.replace(path)


if __name__ == "__main__":
    typer.run(main)
