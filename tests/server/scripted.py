"""An engine that follows a script: what the HTTP side needs of one, without a model."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from unifiedserve.config import EngineConfig
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import Delta, GenerateRequest, TokenLogprob
from unifiedserve.messages.load import EngineLoad
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.seen import RequestPages, RequestPlan, SeenInstance, SeenMedium
from unifiedserve.models.text import NO_LIMIT, TextEncoder
from unifiedserve.models.token_bytes import TokenBytes
from unifiedserve.observe.live import Live
from unifiedserve.observe.metrics import Metrics
from unifiedserve.placement import Stage

Script = Callable[[GenerateRequest], AsyncGenerator[Delta, None]]

WORDS = ["Hello", ", ", "wörld", "!"]


class ByteTokenizer:
    """One token a byte."""

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": list(text.encode())}

    def get_vocab(self) -> dict[str, int]:
        return {chr(byte): byte for byte in range(256)}

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    @cached_property
    def backend_tokenizer(self) -> Tokenizer:
        shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        hidden = [byte for byte in range(256) if byte not in shown]
        letters = {byte: chr(byte) for byte in shown} | {byte: chr(0x100 + i) for i, byte in enumerate(hidden)}
        backend = Tokenizer(BPE({letter: byte for byte, letter in letters.items()}, []))
        backend.decoder = ByteLevel()
        return backend

    def get_added_vocab(self) -> dict[str, int]:
        return {}

    def convert_ids_to_tokens(self, tokens: list[int]) -> list[str]:
        return [f"<{token}>" for token in tokens]


class RoleTemplate:
    template = "{{ messages }}"
    special_ids: ClassVar[dict[str, int]] = {}

    text = TextEncoder(ByteTokenizer())
    tokens = TokenBytes(ByteTokenizer())

    def encode(
        self,
        messages: list[dict[str, Any]],
        expand: Callable[[str], str] = str,
        limit: int = NO_LIMIT,
        /,
        *,
        add_generation_prompt: bool,
        tools: Any = None,
        **options: Any,
    ) -> list[int]:
        text = "".join(f"{m['role']}:{_text(m['content'])}\n" for m in messages)
        return self.text.encode(expand(text + ("assistant:" if add_generation_prompt else "")), limit)


class ScriptedEngine:
    """Implements what `unifiedserve.server.protocol.ServingEngine` asks for; remembers what it was asked."""

    def __init__(self, script: Script | None = None, **options: Any) -> None:
        self.config = EngineConfig.of(**options)
        self.script = script or say_words
        self.model_name = "scripted"
        self.sampling_defaults = SamplingParams()
        self.max_model_len = 4096
        self.healthy = True
        self.observation = ScriptedObservation(self)
        self.metrics = Metrics()
        self.live = Live()
        self.processor = SimpleNamespace(tokenizer=ByteTokenizer(), chat=RoleTemplate(), vocab_size=256, pooling=None)
        self.requests: list[GenerateRequest] = []
        self.plans: list[GenerateRequest] = []
        self.expected_ttft: float | None = None
        self.seen: list[SeenMedium] = []
        self.refusal: RequestError | None = None
        self.events: list[str] = []
        self.running = 0
        self.full: RequestError | None = None
        self.busy = asyncio.Event()
        self.idle = asyncio.Event()

    def check_room(self) -> None:
        if self.full is not None:
            raise self.full

    def change_role(self, instance: str, stages: str) -> None:
        self.events.append(f"{instance} becomes {stages}")

    async def start(self) -> None:
        self.events.append("start")
        self.metrics.bind(self.observation)

    async def stop(self) -> None:
        self.events.append("stop")

    def load(self) -> EngineLoad:
        return EngineLoad(in_flight=self.running)

    async def plan(self, request: GenerateRequest) -> RequestPlan:
        if self.refusal is not None:
            raise self.refusal
        self.plans.append(request)
        return RequestPlan(
            prompt_tokens=7,
            max_tokens=request.sampling.max_tokens or 16,
            pages=RequestPages(7, 7, 1),
            media=self.seen,
            expected_ttft=self.expected_ttft,
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        self.running += 1
        self.busy.set()
        self.idle.clear()
        try:
            async for delta in self.script(request):
                yield delta
        except (asyncio.CancelledError, GeneratorExit):
            self.events.append("abort")
            raise
        finally:
            self.running -= 1
            self.idle.set()


class ScriptedObservation:
    """Made-up figures, and how many requests an engine runs."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self.target_between_tokens = 0.1
        self.in_flight = 4
        self.waiting = 2
        self.page_tokens = 16
        self.role_changes = 1

    def trace(self, request_id: str | None = None) -> dict[str, Any]:
        return {"traceEvents": [], "asked": request_id}

    def buffers(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {("mem0", "kv"): (3, 12)}

    def peaks(self) -> dict[tuple[str, str], int]:
        return {("mem0", "kv"): 4}

    def cached(self) -> dict[tuple[str, str], int]:
        return {("mem0", "kv"): 2}

    def memory(self) -> dict[str, int]:
        return {"weights": 1 << 20}

    def instances(self) -> list[SeenInstance]:
        return [SeenInstance(name="encode-1", stages=[Stage.ENCODE], cores=[0], memory="mem0", state="serving")]

    def hosts(self) -> dict[str, int]:
        return {"encode": 1}

    def silences(self) -> dict[str, float]:
        return {"vision": 1.5}

    def held(self) -> tuple[float, float]:
        return 0.5, 0.09

    def worker_requests(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {("decode", "decode"): (3, 1)}

    def stages(self) -> dict[str, tuple[int, int]]:
        return {"decode": (self._engine.running, 2)}


def delta(text: str, number: int, *, index: int = 0, finish: Any = None, logprobs: bool = False) -> Delta:
    """Delta number `number` (from 1) of an answer: one token, named by its number."""
    return Delta(
        index=index,
        text=text,
        token_ids=[64 + number],
        logprobs=[TokenLogprob(64 + number, -0.5, [(64 + number, -0.5), (200, -1.5)])] if logprobs else None,
        finish_reason=finish,
        prompt_tokens=7,
        generated_tokens=number,
    )


def pausing(going_on: asyncio.Event) -> Script:
    """Return a script that says "Well", and "!" when it may go on."""

    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        yield delta("Well", 1)
        await going_on.wait()
        yield delta("!", 2, finish="stop")

    return script


async def say_words(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    """WORDS for each of the n answers, interleaved; nothing if no tokens are wanted."""
    logprobs = request.sampling.logprobs is not None
    words = WORDS if request.sampling.max_tokens != 0 else []
    for index in range(request.sampling.n if not words else 0):
        yield Delta(
            index=index,
            text="",
            token_ids=[],
            logprobs=[] if logprobs else None,
            finish_reason="length",
            prompt_tokens=7,
            generated_tokens=0,
            prompt_logprobs=score_prompt(request),
        )
    for number, word in enumerate(words, start=1):
        finish = "stop" if number == len(WORDS) else None
        for index in range(request.sampling.n):
            piece = delta(word, number, index=index, finish=finish, logprobs=logprobs)
            piece.prompt_logprobs = score_prompt(request) if number == 1 else None
            yield piece


def score_prompt(request: GenerateRequest) -> list[TokenLogprob] | None:
    """Each token is the third, at -1; "z" is the likeliest."""
    if request.sampling.prompt_logprobs is None:
        return None
    first, *others = request.prompt_token_ids or b"prompt"
    top = [(122, -0.25), (120, -0.5)][: request.sampling.prompt_logprobs]
    return [TokenLogprob(first), *(TokenLogprob(token, -1.0, top, rank=3) for token in others)]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


async def never_end(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    yield delta("Well", 1)
    await asyncio.Event().wait()
