"""Read data sets of questions about videos, one file each."""
