"""Define how the tokens of a request are chosen. The HTTP API's structs share the parameters' bounds."""

import secrets
from collections.abc import Collection
from functools import cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, inspect

CANDIDATES = 1024
MAX_LOGPROBS = 20
SEED_LIMIT = 2**63
INT_LIMIT = 2**31 - 1
MAX_STOP_CHARACTERS = 4096
MAX_BIASES = 1024
_BIAS = 100  # either way
_COLDEST = 1e-5  # below it, logits divided by the temperature may overflow

Temperature = Annotated[float, Meta(ge=0, le=100)]
TopP = Annotated[float, Meta(gt=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, le=INT_LIMIT, description="0 or -1: all tokens")]
MinP = Annotated[float, Meta(ge=0, le=1)]
RepetitionPenalty = Annotated[float, Meta(gt=0, le=100)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Seed = Annotated[int, Meta(ge=-SEED_LIMIT, le=SEED_LIMIT - 1)]
TokenCount = Annotated[int, Meta(ge=0, le=INT_LIMIT)]
LogprobCount = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
ChoiceCount = Annotated[int, Meta(ge=1, le=64)]
Bias = Annotated[float, Meta(ge=-_BIAS, le=_BIAS)]

Number = inspect.IntType | inspect.FloatType


class ParamError(ValueError):
    """Signal a sampling parameter out of range. `param` names it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param} {message}")
        self.param = param


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Choose one request's tokens. The defaults sample from the model's own distribution.

    top_k 0 or -1, top_p 1, min_p 0 and penalties at their defaults do nothing; temperature 0 is greedy. `logprobs`
    is the number of most probable tokens to report beside the chosen one (None: no log-probabilities at all), and
    `prompt_logprobs` the same for each token of the prompt. `max_tokens` None leaves the context length as the only
    limit, 0 ends with the prompt. `grammar` (see `unifiedserve.sampling.grammar`) is what the answer must follow.
    `logit_bias` is added to the logits of these tokens.
    """

    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    min_p: MinP = 0.0
    repetition_penalty: RepetitionPenalty = 1.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    seed: Seed | None = None
    max_tokens: TokenCount | None = None
    min_tokens: TokenCount = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: LogprobCount | None = None
    prompt_logprobs: LogprobCount | None = None
    n: ChoiceCount = 1
    grammar: str | None = None
    logit_bias: dict[int, Bias] = {}

    def check(self) -> None:
        """Raise ParamError that names a parameter that is out of range or contradicts another."""
        for name, bounds in _bounds().items():
            if (value := getattr(self, name)) is not None:
                _require(name, value, bounds)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ParamError("min_tokens", f"must not be above max_tokens {self.max_tokens}, got {self.min_tokens}")
        self._check_stops()
        self._check_biases()

    def _check_stops(self) -> None:
        if not all(self.stop):
            raise ParamError("stop", "must not contain an empty string")
        if sum(map(len, self.stop)) > MAX_STOP_CHARACTERS:
            raise ParamError("stop", f"must not have more than {MAX_STOP_CHARACTERS} characters in all")
        if any(token < 0 for token in self.stop_token_ids):
            raise ParamError("stop_token_ids", "must not contain negative token ids")

    def _check_biases(self) -> None:
        if len(self.logit_bias) > MAX_BIASES:
            raise ParamError("logit_bias", f"must not have more than {MAX_BIASES} tokens, got {len(self.logit_bias)}")
        for token, bias in self.logit_bias.items():
            if token < 0:
                raise ParamError("logit_bias", f"must not contain negative token ids, got {token}")
            _require("logit_bias", bias, inspect.FloatType(ge=-_BIAS, le=_BIAS))

    def finish(
        self, token: int, generated: int, eos_token_ids: Collection[int]
    ) -> tuple[Literal["stop", "length"] | None, int | None]:
        """Return why an answer ends with its newest token, and that one if it stops."""
        if token in self.stop_token_ids:
            return "stop", token
        if token in eos_token_ids and not self.ignore_eos:
            return "stop", None
        if self.max_tokens is not None and generated >= self.max_tokens:
            return "length", None
        return None, None

    def for_choice(self, choice: int) -> "SamplingParams":
        """Return the parameters of choice number `choice` of n.

        Each has a seed of its own, random if none was given.
        """
        seed = secrets.randbits(63) if self.seed is None else self.seed + choice
        return msgspec.structs.replace(self, seed=seed % SEED_LIMIT, n=1)

    @property
    def greedy(self) -> bool:
        return self.temperature < _COLDEST

    @property
    def penalised(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def follows(self) -> bool:
        """Tell whether what can come next depends on which tokens came before, beside how many."""
        return self.penalised or self.grammar is not None

    @property
    def waits(self) -> bool:
        """Tell whether the host must know the last token before it draws another."""
        return self.grammar is not None or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def truncated(self) -> bool:
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


@cache
def _bounds() -> dict[str, Number]:
    """Return the bounds of every numeric parameter, by its name."""
    shape = inspect.type_info(SamplingParams)
    assert isinstance(shape, inspect.StructType)
    return {field.name: number for field in shape.fields if (number := _bounded(field.type)) is not None}


def _bounded(shape: inspect.Type) -> Number | None:
    """Return the number that a type, or its alternative to None, is; None if it has no bounds."""
    if isinstance(shape, inspect.Metadata):
        return _bounded(shape.type)
    if isinstance(shape, inspect.UnionType):
        return next((number for member in shape.types if (number := _bounded(member)) is not None), None)
    if isinstance(shape, inspect.IntType | inspect.FloatType):
        return None if shape.le is None else shape
    return None


def _require(name: str, value: float, bounds: Number) -> None:
    """Raise ParamError unless `value` is within its bounds; NaN never is."""
    above, least, most = bounds.gt, bounds.ge, bounds.le
    if (above is None or above < value) and (least is None or least <= value) and (most is None or value <= most):
        return
    if most == INT_LIMIT:
        wanted = f"at least {least}"
    elif above is not None:
        wanted = f"above {above} and at most {most}"
    else:
        wanted = f"between {least} and {most}"
    raise ParamError(name, f"must be {wanted}, got {value}")
