"""POST /v1/plan."""
