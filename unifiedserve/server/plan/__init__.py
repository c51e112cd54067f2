"""Serve POST /v1/plan."""
