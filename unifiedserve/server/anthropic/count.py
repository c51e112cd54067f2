"""Count the tokens that the model reads of a conversation, without an answer to it."""

from functools import partial

from unifiedserve.server.chat.conversion import generate_request
from unifiedserve.server.chat.request import ChatRequest
from unifiedserve.server.chat.tools import tool_use
from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.prompts import beside, within
from unifiedserve.server.tokens.tokenize import CONTEXTS, encode_turns, message_texts


async def count_tokens(chat: ChatRequest, engine: ServingEngine, fetcher: MediaFetcher) -> int:
    """Return the tokens of a conversation. Without media they may exceed one context.

    Raises RequestError as a chat would.
    """
    characters = sum(map(len, message_texts(chat.messages)))
    work = await generate_request(chat, "", fetcher, tool_use(chat, engine), engine.sampling_defaults)
    if work.media:
        return (await engine.plan(work)).prompt_tokens
    limit = engine.max_model_len * CONTEXTS
    encode = partial(encode_turns, engine.processor, work.messages, limit, work.template)
    return len(await beside(characters, within(limit, "messages", encode)))
