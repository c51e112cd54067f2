"""How much decode and prefill slow each other down, by how they share the GPU; and products under limits of MPS."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.gpu.figures import Figures
from bench.gpu.mps_daemon import mps_daemon
from bench.gpu.partner import Partner

LOAD = "bench.gpu.torch_load:TorchLoad"
SECONDS = 2.0
THREADS, PRIORITY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_CLIENT_PRIORITY"
#: the environment of the process that prefills
LIMITS: dict[str, dict[str, str]] = {
    "MPS": {},
    "MPS, prefill at low priority": {PRIORITY: "1"},
    "MPS, prefill on 40 % of threads": {THREADS: "40"},
}
PERCENTAGES = (10, 25, 33, 42, 45, 50, 60, 66, 75, 80, 90, 100)
TOLERANCE = 1e-2


def without_mps(figures: Figures) -> None:
    """Run steps like decode's and products like prefill's: alone, as two streams, as two processes."""
    with Partner(LOAD) as one:
        decode, prefill = (one.run(kind, SECONDS) for kind in ("decode", "prefill"))
    rows = [{"sharing": "alone", **_columns(decode, prefill)}]
    figures.add(rows=rows)
    rows.append({"sharing": "two streams", **_as_streams()})
    figures.add(rows=rows)
    rows.append({"sharing": "two processes", **_as_processes({}, {})})
    figures.add(rows=rows)


def under_mps(figures: Figures) -> None:
    """Run both as clients of MPS, the one that prefills as it is, at low priority, and with fewer threads."""
    rows = []
    with mps_daemon(Path("mps").resolve()) as mps:
        for name, limit in LIMITS.items():
            rows.append({"sharing": name, **_as_processes(mps, mps | limit)})
            figures.add(rows=rows)


def limited_products(figures: Figures) -> None:
    """Compare bfloat16 products with float32's under limits on threads: where one is wrong, no worker must start."""
    rows: list[dict[str, Any]] = []
    with mps_daemon(Path("mps").resolve()) as mps:
        for percentage in PERCENTAGES:
            with Partner(LOAD, mps | {THREADS: str(percentage)}) as client:
                rows.append({"percentage": percentage, **client.error_of_products()})
                figures.add(rows=rows)
    wrong = [row for row in rows if not row["error"] <= TOLERANCE]
    if unnoticed := [row["percentage"] for row in wrong if not row["check"]]:
        raise RuntimeError(f"bfloat16 products are wrong at {unnoticed} % of threads, and workers start there")


def _as_streams() -> dict[str, float]:
    from bench.gpu.torch_load import TorchLoad

    load = TorchLoad()
    with ThreadPoolExecutor(2) as threads:
        decode = threads.submit(load.run, "decode", SECONDS, -1)
        prefill = threads.submit(load.run, "prefill", SECONDS)
        return _columns(decode.result(), prefill.result())


def _as_processes(for_decode: dict[str, str], for_prefill: dict[str, str]) -> dict[str, float]:
    with Partner(LOAD, for_decode) as decode, Partner(LOAD, for_prefill) as prefill:
        decode.run("decode", 0.1), prefill.run("prefill", 0.1)  # both are up
        waiting = [decode.begin("run", "decode", SECONDS), prefill.begin("run", "prefill", SECONDS)]
        return _columns(*(wait() for wait in waiting))


def _columns(decode: dict[str, float], prefill: dict[str, float]) -> dict[str, float]:
    return {
        "decode_ms": decode["median_ms"],
        "decode_p99_ms": decode["p99_ms"],
        "prefill_ms": prefill["median_ms"],
        "prefill_p99_ms": prefill["p99_ms"],
    }
