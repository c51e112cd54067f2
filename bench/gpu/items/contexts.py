"""What a context costs a process, in time and in memory of the GPU, with and without MPS."""

from pathlib import Path

from bench.gpu.figures import Figures
from bench.gpu.mps_daemon import mps_daemon
from bench.gpu.partner import Partner

CLIENT = "bench.gpu.gpu_client:GpuClient"
MIB = 2**20


def contexts(figures: Figures) -> None:
    """Start one process after another, and see what each takes from the GPU."""
    figures.add(contexts=_started({}, "none"))


def contexts_under_mps(figures: Figures) -> None:
    """Do the same with clients of MPS, whose first starts the server; compare the GPU's UUID inside and outside."""
    with Partner(CLIENT) as outside, mps_daemon(Path("mps").resolve()) as environment:
        outside.start()
        figures.add(contexts=_started(environment, "MPS"))
        with Partner(CLIENT, environment) as inside:
            inside.start()
            figures.add(same_uuid=inside.uuid() == outside.uuid())


def _started(environment: dict[str, str], sharing: str) -> list[dict[str, object]]:
    with Partner(CLIENT, environment) as observer, Partner(CLIENT, environment) as a, Partner(CLIENT, environment) as b:
        rows: list[dict[str, object]] = [{"sharing": sharing, "process": 1, **observer.start(), "mib": None}]
        for number, partner in enumerate((a, b), 2):
            before = observer.memory_info()["free"]
            times = partner.start()
            taken = (before - observer.memory_info()["free"]) / MIB
            rows.append({"sharing": sharing, "process": number, **times, "mib": taken})
        return rows
