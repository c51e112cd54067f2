"""Tell whether cores decode for a decoder for a GPU."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuFallbackStatus:
    """Report what `VideoDecoder.cpu_fallback` tells: true if cores decode although a GPU was asked for.

    Attributes:
        status_known: always true: analysis tells.
        backend: "CPU" or "CUDA".
        reason: why cores decode; empty if they were asked for, or do not.
    """

    status_known: bool
    backend: str
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.reason)

    def __str__(self) -> str:
        status = f"Falling back due to: {self.reason}" if self else "No fallback required"
        return f"[{self.backend}] Fallback status: {status}"
