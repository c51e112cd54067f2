"""Define requests to /tokenize and /detokenize."""

from unifiedserve.server.requests.base import ModelRequest, TokenId
from unifiedserve.server.requests.messages import Messages


class TokenizeRequest(ModelRequest):
    """Give exactly one of `prompt` and `messages` (text only)."""

    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = True
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = False


class DetokenizeRequest(ModelRequest, kw_only=True):
    tokens: list[TokenId]
