"""Who is compared: a server by its kind, and variants of one with another checkout or other options."""

import re
import shlex
from dataclasses import dataclass

OURS = ("shared", "monolithic")
TITLES = {
    "shared": "ours, shared",
    "monolithic": "ours, monolithic",
    "vllm": "vLLM",
    "vllm_flashcodec": "vLLM with FlashCodec",
    "generate": "transformers, generate",
    "continuous": "transformers, continuous batching",
}
SERVERS = (*OURS, "vllm", "vllm_flashcodec")
WRITTEN = re.compile(r"(?P<kind>\w+)(@(?P<python>[^:]+))?(:(?P<options>.+))?")


@dataclass(frozen=True)
class Contestant:
    """One that is compared. `name` is as the user wrote it; `python` serves ours in place of the one that runs this."""

    name: str
    kind: str
    python: str = ""
    options: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        where = f"at {self.python}" if self.python else ""
        return ", ".join(part for part in (TITLES[self.kind], where, " ".join(self.options)) if part)


def read(text: str) -> Contestant:
    """Read KIND[@PYTHON][:OPTIONS], as in `shared:--order=fcfs` or `shared@/other/.venv/bin/python`.

    Raises ValueError if there is no such kind, or if it takes no options or no other Python.
    """
    written = WRITTEN.fullmatch(text)
    if written is None or written["kind"] not in TITLES:
        raise ValueError(f"no server {text!r}; there are {', '.join(TITLES)}")
    kind, python = written["kind"], written["python"] or ""
    options = tuple(shlex.split(written["options"] or ""))
    if python and kind not in OURS:
        raise ValueError(f"{text}: only {' and '.join(OURS)} can be served by another Python")
    if options and kind not in SERVERS:
        raise ValueError(f"{text}: only {', '.join(SERVERS)} take options")
    return Contestant(text, kind, python, options)
