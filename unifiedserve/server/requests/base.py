"""Define the base of every request: strict fields, the model's name, and a turn among others."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from unifiedserve.messages.sampling_params import INT_LIMIT

PositiveInt = Annotated[int, Meta(ge=1, le=INT_LIMIT)]
TokenId = Annotated[int, Meta(ge=0, le=INT_LIMIT)]
Priority = Annotated[int, Meta(ge=-(2**31), le=INT_LIMIT, description="The lowest goes first")]
FirstTokenTarget = Annotated[
    float, Meta(gt=0, le=1e9, description="The target for the first token in milliseconds, which orders requests")
]
Resume = Annotated[
    list[list[TokenId]],
    Meta(
        max_length=1024, description="The tokens of each answer that another server has generated, which goes on here"
    ),
]
Deadline = Annotated[float, Meta(gt=0, le=1e6, description="Seconds for the whole answer")]


class _Anything(frozenset[Any]):
    """Hold all values: those of a hint that may be left unheeded."""

    def __contains__(self, value: object) -> bool:
        return True


# Options of OpenAI's and vLLM's APIs that are not served, with the values at which they ask for nothing.
_ANYWHERE: dict[str, Collection[Any]] = {"cache_control": _Anything()}  # all prefixes are cached
_UNSUPPORTED: dict[str, Collection[Any]] = {
    **_ANYWHERE,
    "add_special_tokens": (None, False),
    "allowed_token_ids": (None,),
    "audio": (None,),
    "bad_words": (None, []),
    "continue_final_message": (None, False),
    "detokenize": (None, True),
    "documents": (None, []),
    "early_stopping": (None, False),
    "best_of": (None, 1),
    "echo": (None, False),
    "function_call": (None, "none"),
    "functions": (None, []),
    "guided_decoding_backend": (None,),
    "include_reasoning": (None, True),
    "include_stop_str_in_output": (None, False),
    "length_penalty": (None, 1),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "prompt_cache_retention": (None, "in_memory", "in-memory"),
    "reasoning_effort": (None, "none"),
    "return_tokens_as_token_ids": (None, False),
    "skip_special_tokens": (None, True),
    "spaces_between_special_tokens": (None, True),
    "store": (None, False),
    "suffix": (None, ""),
    "truncate_prompt_tokens": (None,),
    "use_beam_search": (None, False),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Refuse unknown fields of an object, because a misspelt option must not be ignored.

    `unsupported` are options of OpenAI's and vLLM's APIs that are not served, with the values at which they ask for
    nothing: with these they are accepted.
    """

    unsupported: ClassVar[Mapping[str, Collection[Any]]] = _ANYWHERE


class ModelRequest(Strict):
    """Ask the model that is served, by its name if given."""

    takes_turn: ClassVar[bool] = False  # among others, in the engine

    model: str | None = None


class QueuedRequest(ModelRequest):
    """Ask for a turn among other requests."""

    unsupported: ClassVar[Mapping[str, Collection[Any]]] = _UNSUPPORTED

    takes_turn: ClassVar[bool] = True

    priority: Priority | None = None
    slo_ttft: FirstTokenTarget | None = None
    deadline: Deadline | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
