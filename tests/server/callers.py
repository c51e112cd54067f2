"""Callers with keys."""

ANNE, BEN = "sk-anne-0123456789", "sk-ben-0123456789"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
