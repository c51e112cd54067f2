"""Define what users of the engine give it and get from it."""

from typing import Any, Literal

import msgspec

from unifiedserve.messages.load import EncodeNode
from unifiedserve.messages.media import MediaOptions, Source
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.seen import SeenMedium

FinishReason = Literal["stop", "length"]


class MediaInput(msgspec.Struct, kw_only=True):
    """Give one image or video of a request. `param` is where the client named it.

    It is its bytes, the path of a local file, or where the engine has put the bytes. A video may be images, one after
    the other in `data`: `frames` are their sizes in bytes, `fps` is their rate.
    """

    kind: Literal["image", "video"]
    param: str = "messages"
    data: bytes | bytearray | None = None
    path: str | None = None
    spooled: Source | None = None
    held: Any = None  # counts the bytes as long as it is here, with the bytes
    options: MediaOptions = msgspec.field(default_factory=MediaOptions)
    frames: list[int] = []
    fps: float = 0.0

    @property
    def where(self) -> Source:
        """Return where others find the bytes, once the engine has them."""
        return self.spooled or Source(path=self.path)


class GenerateRequest(msgspec.Struct, kw_only=True):
    """Ask the engine for answers. `media` is in the order of the parts in `messages`.

    `prompt_param` and `grammar_param` are the client's own names of the prompt and of the source of `sampling.grammar`.
    With `special_text` the answers show special tokens, too. The lowest `priority` goes first. Its first token is owed
    `slo_ttft` seconds after its arrival (None: as the daemon's target says). `deadline` seconds after it, an answer
    that is not complete ends with an error. With `embed` the prompt's pooled hidden state is wanted instead of tokens:
    `sampling.max_tokens` is 0. With a `max_ttft` (seconds) fewer frames are looked at where the first token would come
    later, and with `tell_media` the answers tell what is seen. A `viewer` of this name sees it live. Its media were
    fetched from the first of the moments `fetched` to the second (monotonic seconds). `resume` has the tokens of each
    answer that another server has generated; these go on from there. Where this one encodes no media, one of the
    `encode_nodes` does.
    """

    id: str
    messages: list[dict[str, Any]] = msgspec.field(default_factory=list)
    media: list[MediaInput] = msgspec.field(default_factory=list)
    sampling: SamplingParams = msgspec.field(default_factory=SamplingParams)
    template: dict[str, Any] = msgspec.field(default_factory=dict)
    prompt_token_ids: list[int] | None = None
    prompt_param: str = "messages"
    grammar_param: str = "grammar"
    special_text: bool = False
    priority: int = 0
    slo_ttft: float | None = None
    deadline: float | None = None
    embed: bool = False
    max_ttft: float | None = None
    tell_media: bool = False
    viewer: str | None = None
    fetched: tuple[float, float] | None = None
    resume: list[list[int]] = []
    encode_nodes: list[EncodeNode] = []


class TokenLogprob(msgspec.Struct):
    """Give a token's log probability and the likeliest tokens in its place. One of a prompt also has its rank."""

    token: int
    logprob: float | None = None
    top: list[tuple[int, float]] = []
    rank: int | None = None  # from 1


class Delta(msgspec.Struct, kw_only=True):
    """Carry a piece of answer number `index`. The first one of each has what was asked about the prompt.

    `resumed` ones hold what the request came with: their reader has them already.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    prompt_tokens: int
    cached_tokens: int = 0  # of the prompt, which need not be computed
    generated_tokens: int
    prompt_logprobs: list[TokenLogprob] | None = None  # none of the first token
    pooled: bytes | None = None  # float32
    media: list[SeenMedium] | None = None  # in the order of the prompt
    resumed: bool = False
