"""Serve the OpenAI-compatible HTTP API."""
