"""Serve image and video language models, with stages that share the hardware."""

__version__ = "0.1.0"
