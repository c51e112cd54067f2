"""Kernels in Triton, one file each; importing one needs the package `triton`."""
