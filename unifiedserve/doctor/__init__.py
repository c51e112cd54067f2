"""Run `unifiedserve doctor`: what this machine has, what it lacks, and what to do about it.

Needs nothing but the standard library, so that it is the first thing to run on a new machine:
`python -m unifiedserve.doctor [--json]`.
"""

from collections.abc import Callable, Iterator

from unifiedserve.doctor import cuda_ipc, ffmpeg, gpu, libraries, mps, nvdec, system, torch_stack
from unifiedserve.doctor.check import Check, Status
from unifiedserve.doctor.report import Report, as_json, cpu_path_works, show

Probe = Callable[[], list[Check]]

MACHINE: tuple[tuple[str, Probe], ...] = (
    ("Machine", system.probe),
    ("FFmpeg", ffmpeg.probe),
    ("Python packages", torch_stack.probe),
    ("GPU libraries and programs", libraries.probe),
    ("GPU", gpu.probe),
)
WITH_A_GPU: tuple[tuple[str, Probe], ...] = (
    ("Video decoding in hardware", nvdec.probe),
    ("Sharing memory between processes", cuda_ipc.probe),
    ("Sharing the GPU between processes", mps.probe),
)


def main(json: bool = False) -> int:
    """Print the report; return 0 when serving on the CPU would work, 1 when something it needs is missing."""
    report = examine()
    if json:
        print(as_json(report))
    else:
        show(report)
    return 0 if cpu_path_works(report) else 1


def examine() -> Report:
    """Run every probe. A probe that fails becomes a warning of its own; nothing is raised."""
    return list(sections())


def sections() -> Iterator[tuple[str, list[Check]]]:
    """Run the probes one after another, and yield each one's title and checks."""
    for title, probe in MACHINE:
        yield title, checked(title, probe)
    if gpu.has_device():
        for title, probe in WITH_A_GPU:
            yield title, checked(title, probe)


def checked(title: str, probe: Probe) -> list[Check]:
    try:
        return probe()
    except Exception as error:
        return [Check(title, f"the probe failed: {type(error).__name__}: {error}", Status.WARN)]
