"""Compute by kernels in Triton, one file each. Importing one needs the package `triton`."""
