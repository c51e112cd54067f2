"""UnifiedServe: a staged serving engine for image and video language models."""

__version__ = "0.1.0"
