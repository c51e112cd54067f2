"""Data sets of questions about videos, one file each."""
