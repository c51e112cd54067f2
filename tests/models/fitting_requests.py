"""Requests with a video and some words, for a cache of 10,000 tokens."""

from pathlib import Path

from unifiedserve.memory.shared import EngineLayout, MemoryLayout, PoolSize
from unifiedserve.messages.api import GenerateRequest, MediaInput
from unifiedserve.messages.media import MediaOptions
from unifiedserve.placement import FIRST_MEMORY

SIZE = PoolSize(10_000, 1)
LAYOUT = EngineLayout(engine_id="none", memories={FIRST_MEMORY: MemoryLayout(SIZE, SIZE, SIZE)}, instances=())


def request(clip: Path, words: int, **options: int) -> GenerateRequest:
    content = [{"type": "video"}, {"type": "text", "text": "word " * words}]
    media = [MediaInput(kind="video", path=str(clip), options=MediaOptions(**options))]
    return GenerateRequest(id="x", messages=[{"role": "user", "content": content}], media=media)
