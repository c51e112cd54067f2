"""Turn texts and messages into token ids, and back."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages.media import PromptError
from unifiedserve.models.text import TooLongError
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.conversation import template_turn, turn_kwargs
from unifiedserve.server.requests.messages import Message, RefusalPart, TextPart
from unifiedserve.server.requests.prompts import beside, within
from unifiedserve.server.tokens.request import DetokenizeRequest, TokenizeRequest

CONTEXTS = 4  # times the context: clients count tokens to know what they must leave out


class TokenizeReply(msgspec.Struct, omit_defaults=True, kw_only=True):
    tokens: list[int]
    count: int
    max_model_len: int
    token_strs: list[str] | None = None


class DetokenizeReply(msgspec.Struct):
    prompt: str


async def tokenize(asked: TokenizeRequest, engine: ServingEngine) -> TokenizeReply:
    """Return the token ids.

    Raises RequestError 400 unless exactly one of prompt and messages is given, as text, of some contexts at most.
    """
    if (asked.prompt is None) == (asked.messages is None):
        raise RequestError("Exactly one of `prompt` and `messages` is needed.", param="prompt")
    limit = engine.max_model_len * CONTEXTS
    param = "messages" if asked.prompt is None else "prompt"
    encode = within(limit, param, partial(_encode, asked, engine.processor, limit))
    tokens, written = await beside(sum(map(len, _texts(asked))), encode)
    return TokenizeReply(
        tokens=tokens,
        count=len(tokens),
        max_model_len=engine.max_model_len,
        token_strs=written,
    )


async def detokenize(asked: DetokenizeRequest, engine: ServingEngine) -> DetokenizeReply:
    """Return the text; raise RequestError 400 for a token that is not in the vocabulary."""
    vocabulary = engine.processor.vocab_size
    for position, token in enumerate(asked.tokens):
        if token >= vocabulary:
            raise RequestError(f"Token {token} is not in the vocabulary of {vocabulary}.", param=f"tokens[{position}]")
    return DetokenizeReply(await asyncio.to_thread(engine.processor.tokenizer.decode, asked.tokens))


def _encode(asked: TokenizeRequest, processor: Any, limit: int) -> tuple[list[int], list[str] | None]:
    """Return the token ids, and as texts if those are wanted."""
    ids = _ids(asked, processor, limit)
    return ids, processor.tokenizer.convert_ids_to_tokens(ids) if asked.return_token_strs else None


def _ids(asked: TokenizeRequest, processor: Any, limit: int) -> list[int]:
    if asked.prompt is not None:
        ids: list[int] = processor.chat.text.encode(asked.prompt, limit, special=asked.add_special_tokens is not False)
        return ids
    turns = [_text_turn(number, message) for number, message in enumerate(asked.messages or ())]
    return encode_turns(processor, turns, limit, turn_kwargs(asked))


def encode_turns(
    processor: Any, turns: list[dict[str, Any]], limit: int, template_kwargs: Mapping[str, Any]
) -> list[int]:
    """Return the token ids of messages without media.

    Raises RequestError 400 if the template refuses them, and TooLongError for far more than `limit` tokens.
    """
    try:
        ids: list[int] = processor.chat.encode(turns, str, limit, **template_kwargs)
    except TooLongError:
        raise
    except PromptError as error:
        raise RequestError(f"{error}.", param=error.param or "messages") from None
    return ids


def _texts(asked: TokenizeRequest) -> Iterator[str]:
    yield asked.prompt or ""
    yield from message_texts(asked.messages or ())


def message_texts(messages: Iterable[Message]) -> Iterator[str]:
    """Yield what messages say in words."""
    for message in messages:
        if isinstance(message.content, list):
            yield from (part.text for part in message.content if isinstance(part, TextPart | RefusalPart))
        else:
            yield message.content or ""


def _check_texts(number: int, message: Message) -> None:
    """Raise RequestError 400 for a message, of this number in its request, that has media."""
    for position, part in enumerate(message.content if isinstance(message.content, list) else ()):
        if not isinstance(part, TextPart | RefusalPart):
            raise RequestError(
                "Only text can be tokenized: an image's or video's tokens depend on the whole request.",
                param=f"messages[{number}].content[{position}]",
            )


def _text_turn(number: int, message: Message) -> dict[str, Any]:
    _check_texts(number, message)
    turn = template_turn(number, message)
    if isinstance(message.content, list):
        turn["content"] = [{"type": "text", "text": text} for text in message_texts([message])]
    return turn
