"""Serve GET /v1/events."""
