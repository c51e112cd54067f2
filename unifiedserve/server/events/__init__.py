"""GET /v1/events."""
