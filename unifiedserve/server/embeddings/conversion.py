"""Convert an embedding request to the engine's: one for each input."""

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.pooling import Pooling
from unifiedserve.server.embeddings.request import EmbeddingRequest
from unifiedserve.server.errors import refuse_unless
from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.conversation import conversation
from unifiedserve.server.requests.prompts import encoded, prompts_of
from unifiedserve.server.requests.sampling import engine_request

_NO_TOKENS = SamplingParams(max_tokens=0)


async def embedding_requests(
    asked: EmbeddingRequest, id: str, fetcher: MediaFetcher, engine: ServingEngine
) -> list[GenerateRequest]:
    """Return one request an input.

    Raises RequestError 400 for a model without embeddings, and unless there is exactly one of input and messages.
    """
    pooling: Pooling | None = engine.processor.pooling
    if pooling is None:
        raise RequestError(
            f"The model `{engine.model_name}` generates text and makes no embeddings: serve a checkpoint that comes "
            "with sentence-transformers' modules.json and 1_Pooling, as Qwen3-Embedding does.",
            param="model",
            code="unsupported",
        )
    refuse_unless((asked.input is None) != (asked.messages is None), "input", "Give either `input` or `messages`.")
    _check_dimensions(asked.dimensions, pooling)
    if asked.messages is not None:
        prompt = await conversation(asked, asked.messages, fetcher)
        told = bool(asked.return_media_usage)
        return [engine_request(asked, id, _NO_TOKENS, embed=True, tell_media=told, **prompt)]
    special = asked.add_special_tokens is not False
    token_ids = await encoded(asked.input or "", "input", engine, special=special)
    return [engine_request(asked, id, _NO_TOKENS, embed=True, **prompt) for prompt in prompts_of(token_ids, "input")]


def _check_dimensions(asked: int | None, pooling: Pooling) -> None:
    if asked is None or pooling.dimensions is None:
        return
    refuse_unless(
        bool(pooling.dimensions),
        "dimensions",
        "`dimensions` needs a model whose embeddings may be cut: `is_matryoshka` or `matryoshka_dimensions` "
        "in its config.json.",
    )
    allowed = ", ".join(map(str, pooling.dimensions))
    refuse_unless(asked in pooling.dimensions, "dimensions", f"`dimensions` must be one of {allowed}, got {asked}.")
