"""Inspect Python packages: torch, transformers and what the server needs beside them."""

from importlib import metadata
from typing import Any

from unifiedserve.doctor.check import Check, Status, version_tuple
from unifiedserve.doctor.isolation import ProbeError, call

OLDEST_TORCH = (2, 11)
OLDEST_TRANSFORMERS = (5, 23)
SERVING = {  # the oldest versions that serve
    "anyio": (4,),
    "cachetools": (6,),
    "gguf": (0, 17),
    "greenlet": (3,),
    "httpx": (0, 27),
    "jinja2": (3, 1),
    "llguidance": (1, 9),
    "msgspec": (0, 19),
    "pillow": (10, 3),
    "prometheus-client": (0, 20),
    "psutil": (5, 9),
    "python-multipart": (0, 0, 34),
    "rich": (13, 7),
    "safetensors": (0, 4, 5),
    "simplejpeg": (1, 8),
    "starlette": (0, 46),
    "tokenizers": (0, 21),
    "tomli-w": (1,),
    "typer": (0, 29),
    "uvicorn": (0, 30),
    "uvloop": (0, 22),
}
INSTALL = "make setup, or pip install 'unifiedserve[serve]'"


def probe() -> list[Check]:
    return [ipc_buffers(), numpy(), torch(), transformers(), serving(), flashinfer()]


def ipc_buffers() -> Check:
    try:
        call("torch_stack:import_module", "ipc_buffers._core")
    except ProbeError as error:
        return Check("ipc_buffers", f"not usable: {error}", Status.MISSING, "make setup", required=True)
    return Check("ipc_buffers", "its C++ core loads", required=True)


def numpy() -> Check:
    return _package("numpy", (1, 26))


def torch() -> Check:
    try:
        found = call("torch_stack:import_torch", timeout=120)
    except ProbeError as error:
        return Check("torch", f"not usable: {error}", Status.MISSING, INSTALL, required=True)
    value = f"{found['version']}, {found['threads']} threads, {found['device']}"
    if version_tuple(found["version"]) < OLDEST_TORCH:
        return Check("torch", value, Status.MISSING, "torch 2.11 or newer", required=True, details=found)
    return Check("torch", value, required=True, details=found)


def transformers() -> Check:
    return _package("transformers", OLDEST_TRANSFORMERS)


def serving() -> Check:
    found = {name: _version(name) for name in SERVING}
    lacking = [name for name, version in found.items() if version is None]
    old = [f"{name} {version}" for name, version in found.items() if version and version_tuple(version) < SERVING[name]]
    wrong = [*(["without " + ", ".join(lacking)] if lacking else []), *(["too old: " + ", ".join(old)] if old else [])]
    if wrong:
        value = "; ".join(wrong)
        return Check("server packages", value, Status.MISSING, INSTALL, required=True)
    return Check("server packages", f"all {len(SERVING)} found", required=True)


def flashinfer() -> Check:
    found = _version("flashinfer-python")
    return Check("flashinfer", found or "none (nothing uses it yet)")


def import_module(name: str) -> str:
    return str(__import__(name, fromlist=["_"]).__file__)


def import_torch() -> dict[str, Any]:
    import torch

    cuda = torch.version.cuda
    device = f"CUDA {cuda}" if cuda else "CPU build"
    return {"version": torch.__version__, "threads": torch.get_num_threads(), "cuda": cuda, "device": device}


def _package(name: str, oldest: tuple[int, ...]) -> Check:
    found = _version(name)
    wanted = ".".join(map(str, oldest))
    if found is None:
        return Check(name, "none", Status.MISSING, INSTALL, required=True)
    if version_tuple(found) < oldest:
        return Check(name, found, Status.MISSING, f"{name} {wanted} or newer: {INSTALL}", required=True)
    return Check(name, found, required=True)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
