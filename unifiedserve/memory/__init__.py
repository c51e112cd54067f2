"""Typed views of the shared buffers."""
