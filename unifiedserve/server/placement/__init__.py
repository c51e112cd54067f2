"""Serve GET and POST /v1/placement."""
