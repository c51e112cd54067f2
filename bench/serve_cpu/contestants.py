"""Who is compared: a server by its kind, and variants of one with another checkout or other options."""

import re
import shlex
from dataclasses import dataclass

from unifiedserve.placement import NAMED

OURS = tuple(NAMED)
TITLES = {
    **{name: f"ours, {name}" for name in OURS},
    "vllm": "vLLM",
    "vllm_flashcodec": "vLLM with FlashCodec",
    "llamacpp": "llama.cpp",
    "llamacpp_batched": "llama-batched-bench",
    "openvino": "OpenVINO GenAI",
    "generate": "transformers, generate",
    "continuous": "transformers, continuous batching",
}
#: who is compared unless the user names others
USUAL = ("shared", "monolithic", "vllm", "vllm_flashcodec", "generate", "continuous")
LLAMACPP = ("llamacpp", "llamacpp_batched")
SERVERS = (*OURS, "vllm", "vllm_flashcodec", "llamacpp")
QUANTIZED = ("int8", "int4")
GGUF = ("bf16", "q8_0", "q4_0")
#: the weights that a kind serves instead of the checkpoint's
WEIGHTS = {
    **dict.fromkeys(OURS, (*QUANTIZED, *GGUF)),
    **dict.fromkeys(("vllm", "vllm_flashcodec"), QUANTIZED),
    **dict.fromkeys((*LLAMACPP, "openvino"), GGUF),
}
WRITTEN = re.compile(r"(?P<kind>[\w-]+)(\+(?P<weights>\w+))?(@(?P<python>[^:]+))?(:(?P<options>.+))?")


@dataclass(frozen=True)
class Contestant:
    """One that is compared. `name` is as the user wrote it; `python` serves ours in place of the one that runs this.

    `weights` says which quantised checkpoint it serves; empty: the plain one.
    """

    name: str
    kind: str
    python: str = ""
    options: tuple[str, ...] = ()
    weights: str = ""

    @property
    def title(self) -> str:
        where = f"at {self.python}" if self.python else ""
        return ", ".join(part for part in (TITLES[self.kind], self.weights, where, " ".join(self.options)) if part)


def read(text: str) -> Contestant:
    """Read KIND[+WEIGHTS][@PYTHON][:OPTIONS], as in `vllm+int8` or `shared@/other/.venv/bin/python:--order=fcfs`.

    Raises ValueError if there is no such kind, or if it takes no options, no other weights or no other Python.
    """
    written = WRITTEN.fullmatch(text)
    if written is None or written["kind"] not in TITLES:
        raise ValueError(f"no server {text!r}; there are {', '.join(TITLES)}")
    kind, python = written["kind"], written["python"] or ""
    options = tuple(shlex.split(written["options"] or ""))
    if python and kind not in OURS:
        raise ValueError(f"{text}: only {', '.join(OURS)} can be served by another Python")
    if options and kind not in SERVERS:
        raise ValueError(f"{text}: only {', '.join(SERVERS)} take options")
    weights = written["weights"] or ""
    if weights and weights not in WEIGHTS.get(kind, ()):
        serving = "; ".join(f"{name}: {', '.join(known)}" for name, known in WEIGHTS.items())
        raise ValueError(f"{text}: no such weights; there are, by server, {serving}")
    return Contestant(text, kind, python, options, weights)
