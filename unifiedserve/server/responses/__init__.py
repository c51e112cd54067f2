"""Serve POST /v1/responses."""
