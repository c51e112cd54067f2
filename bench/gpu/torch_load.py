"""A process that loads a GPU through torch, for `Partner`: steps like decode's, and products like prefill's."""

import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional

HIDDEN, INTERMEDIATE, LAYERS, TOKENS = 3584, 18944, 28, 2048


class TorchLoad:
    """Weights of one matrix a layer, and a stream; the first call of each kind is a warm-up."""

    def __init__(self) -> None:
        self._weights = torch.randn(LAYERS, INTERMEDIATE, HIDDEN, dtype=torch.bfloat16, device="cuda")
        self._work: dict[str, Callable[[], object]] = {"decode": self._decode, "prefill": self._prefill}
        for work in self._work.values():
            work()
        torch.cuda.synchronize()

    def run(self, kind: str, seconds: float, priority: int = 0) -> dict[str, float]:
        """Do steps of a kind for some seconds; return their number and median and 99th percentile of milliseconds."""
        times = []
        end = time.perf_counter() + seconds
        stream = torch.cuda.Stream(priority=priority)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            while (start := time.perf_counter()) < end:
                self._work[kind]()
                stream.synchronize()
                times.append(1e3 * (time.perf_counter() - start))
        times.sort()
        return {"steps": len(times), "median_ms": statistics.median(times), "p99_ms": times[int(0.99 * len(times))]}

    def error_of_products(self) -> dict[str, float | str]:
        """Return how far bfloat16 products are from float32's, relative to these, and what the engine's check says."""
        torch.backends.cuda.matmul.allow_tf32 = False
        worst = 0.0
        for tokens in (1, 17, 64, 512, 2048):
            x = torch.randn(tokens, HIDDEN, dtype=torch.bfloat16, device="cuda")
            for weight in self._weights[:2]:
                exact = x.float() @ weight.float().T
                off = (x @ weight.T).float() - exact
                worst = max(worst, float(off.norm() / exact.norm()))
        count = torch.cuda.get_device_properties(0).multi_processor_count
        return {"error": worst, "multiprocessors": count, "check": _checked()}

    def _decode(self) -> None:
        x = torch.ones(1, HIDDEN, dtype=torch.bfloat16, device="cuda")
        for weight in self._weights:
            functional.linear(x, weight)

    def _prefill(self) -> None:
        x = torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16, device="cuda")
        for weight in self._weights[:4]:
            functional.linear(x, weight)


def _checked() -> str:
    from unifiedserve.device.cuda.products import check_products  # the other items need no core of the engine's
    from unifiedserve.errors import ConfigError

    try:
        check_products(torch.device("cuda"))
    except ConfigError as error:
        return str(error)
    return ""
