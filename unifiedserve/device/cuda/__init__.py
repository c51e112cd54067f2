"""Compute on a GPU of NVIDIA's: torch's products, and kernels in Triton between them ([GPUs](docs/gpu.md))."""

from unifiedserve.device.cuda.device import CudaDevice

__all__ = ["CudaDevice"]
