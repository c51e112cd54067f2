"""Compute on the processor: C++ kernels, and oneDNN's and torch's products."""

from unifiedserve.device.cpu.device import CPU

__all__ = ["CPU"]
