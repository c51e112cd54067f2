"""Collect the embeddings of a request as they come: OpenAI's list of vectors."""

import base64
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from unifiedserve.messages.api import Delta
from unifiedserve.messages.seen import SeenMedium
from unifiedserve.models.pooling import Pooling
from unifiedserve.server.embeddings.request import EmbeddingRequest


class Embedding(msgspec.Struct):
    """Carry a vector, as numbers or as float32 (little-endian) in base64."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int
    media: list[SeenMedium] | msgspec.UnsetType = msgspec.UNSET


class EmbeddingList(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class EmbeddingReply:
    """Collect the embeddings of one request, as they come."""

    def __init__(self, asked: EmbeddingRequest, model: str, pooling: Pooling) -> None:
        self._in_base64 = asked.encoding_format == "base64"
        self._dimensions = asked.dimensions
        self._model = model
        self._pooling = pooling
        self._usage = EmbeddingUsage(0, 0)
        self._embeddings: list[Embedding] = []

    def take(self, delta: Delta) -> list[Embedding]:
        self._usage.prompt_tokens += delta.prompt_tokens
        self._usage.total_tokens += delta.prompt_tokens
        if delta.media is not None:
            self._usage.media = delta.media
        vector = self._pooling.finish(np.frombuffer(delta.pooled or b"", np.float32), self._dimensions)
        written = base64.b64encode(vector.astype("<f4").tobytes()).decode() if self._in_base64 else vector.tolist()
        return [Embedding(delta.index, written)]

    def keep(self, embeddings: Sequence[Embedding]) -> None:
        """Remember them for `completion`."""
        self._embeddings += embeddings

    def completion(self) -> EmbeddingList:
        data = sorted(self._embeddings, key=lambda embedding: embedding.index)
        return EmbeddingList(data=data, model=self._model, usage=self._usage)
