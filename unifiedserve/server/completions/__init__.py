"""Serve POST /v1/completions."""
