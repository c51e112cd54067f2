"""Describe what servers understand beyond OpenAI's API, as data."""

from typing import Any

import msgspec

from unifiedserve.errors import ConfigError


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a server's extensions.

    `exact` are the fields that make an answer as long as `max_tokens`, `token_ids` those that put ids into every chunk.
    `options` has the paths in the body at which an option of media stands, `salt` that of the salt of caches. Metrics
    begin with `metrics`; `trace` is where the timeline of requests is, `files` where media are uploaded whose ids then
    stand in the place of URLs.
    """

    name: str
    exact: dict[str, Any] = {}
    token_ids: dict[str, Any] = {}
    options: dict[str, tuple[tuple[str, ...], ...]] = {}
    salt: str = ""
    metrics: str = ""
    trace: str = ""
    files: str = ""


_VIDEO_OPTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "frames": (("media_io_kwargs", "video", "num_frames"),),
    "fps": (("media_io_kwargs", "video", "fps"),),
    "max_pixels": (("mm_processor_kwargs", "max_pixels"),),
    "frame_pixels": (("mm_processor_kwargs", "max_pixels"),),
}

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            name="unifiedserve",
            exact={"ignore_eos": True},
            token_ids={"return_token_ids": True},
            options=_VIDEO_OPTIONS,
            metrics="unifiedserve:",
            trace="/debug/trace",
            files="v1/files",
        ),
        Dialect(
            name="vllm",
            exact={"ignore_eos": True},
            token_ids={"return_token_ids": True},
            # its loaders of some models, Qwen-VL's among them, know a limit instead of a number of frames
            options=_VIDEO_OPTIONS
            | {"frames": (("media_io_kwargs", "video", "num_frames"), ("media_io_kwargs", "video", "max_frames"))},
            salt="cache_salt",
            metrics="vllm:",
        ),
        Dialect(name="sglang", exact={"ignore_eos": True}, metrics="sglang:"),
        Dialect(name="openai"),
    )
}


def dialect_named(name: str) -> Dialect:
    """Return the dialect of that name. Raises ConfigError if there is none."""
    if name not in DIALECTS:
        raise ConfigError(f"--dialect: there is no {name!r}; choose one of {', '.join(DIALECTS)}")
    return DIALECTS[name]
