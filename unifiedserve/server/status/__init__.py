"""Serve GET /v1/models, /health, /metrics, /version and /debug/trace."""
