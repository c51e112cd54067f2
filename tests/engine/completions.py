"""Greedy answers of a daemon, the figures of its metrics, and options that many tests give it."""

from typing import Any

import pytest
from daemon import Daemon

from unifiedserve.models.default import DEFAULT_MODEL

PLACEMENTS = ["shared", "monolithic"]
SHARED_FIRST = ["shared", pytest.param("monolithic", marks=pytest.mark.long)]  # where others try both
TIGHT_BUFFERS: dict[str, Any] = {"kv_cache_mib": 1, "prefill_chunk_tokens": 32}
KEEPS_NOTHING: dict[str, Any] = {"no_prefix_cache": True, "visual_cache_mib": 0}
SMALL_BUFFERS: dict[str, Any] = {"kv_cache_mib": 4, "patch_buffer_mib": 1, "visual_buffer_mib": 1, **KEEPS_NOTHING}


def ask(daemon: Daemon, *parts: dict[str, Any], **options: Any) -> Any:
    return daemon.client.chat.completions.create(
        model=daemon.engine.model_name,
        messages=[{"role": "user", "content": list(parts)}],
        **{"temperature": 0, "max_tokens": 16, "extra_body": {"return_token_ids": True}, **options},
    )


def tokens(daemon: Daemon, *parts: dict[str, Any], **options: Any) -> list[int]:
    return ask(daemon, *parts, **options).choices[0].token_ids


def metric(daemon: Daemon, name: str) -> float:
    lines = daemon.engine.metrics.text().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"unifiedserve:{name}"))


BUNDLED = {"model": "bundled", "served_model_name": DEFAULT_MODEL, "allowed_local_media_path": "local media"}


def complete(daemon: Daemon, prompt: Any, **options: Any) -> Any:
    return daemon.client.completions.create(
        model=daemon.engine.model_name, prompt=prompt, **{"temperature": 0, "max_tokens": 16, **options}
    )
