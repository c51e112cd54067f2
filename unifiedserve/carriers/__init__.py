"""Carry pages from one memory into another: shared memory, TCP, NIXL, or CUDA between GPUs."""
