"""From logits to tokens, as a pure function of the request's parameters.

Randomness is counter-based: generated token number i of a request draws one uniform from Philox(key=seed, counter=i),
so a token is the same wherever and in whatever batch it is sampled.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

CANDIDATES = 1024
MAX_LOGPROBS = 20
MAX_CHOICES = 128
SEED_LIMIT = 2**63
INT_LIMIT = 2**31 - 1
MAX_STOP_CHARACTERS = 4096
MAX_BIASES = 1024
_COLDEST = 1e-5  # below it, logits divided by the temperature may overflow


class ParamError(ValueError):
    """A sampling parameter out of range; `param` names it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param} {message}")
        self.param = param


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the tokens of one request are chosen; the defaults sample from the model's own distribution.

    top_k 0 or -1, top_p 1, min_p 0 and penalties at their defaults do nothing; temperature 0 is greedy. `logprobs`
    is the number of most probable tokens to report beside the chosen one (None: no log-probabilities at all), and
    `prompt_logprobs` the same for each token of the prompt. `max_tokens` None leaves the context length as the only
    limit, 0 ends with the prompt. `grammar` (see `unifiedserve.grammar`) is what the answer must follow. `logit_bias`
    is added to the logits of these tokens.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    n: int = 1
    grammar: str | None = None
    logit_bias: dict[int, float] = {}

    def check(self) -> None:
        """Raises ParamError naming the first parameter out of range."""
        _require("temperature", self.temperature, 0, 100)
        _require("top_p", self.top_p, 0, 1, above=True)
        _require("min_p", self.min_p, 0, 1)
        _require("top_k", self.top_k, -1, INT_LIMIT)
        _require("repetition_penalty", self.repetition_penalty, 0, 100, above=True)
        _require("presence_penalty", self.presence_penalty, -2, 2)
        _require("frequency_penalty", self.frequency_penalty, -2, 2)
        _require("n", self.n, 1, MAX_CHOICES)
        _require("min_tokens", self.min_tokens, 0, INT_LIMIT)
        if self.seed is not None:
            _require("seed", self.seed, -SEED_LIMIT, SEED_LIMIT - 1)
        if self.max_tokens is not None:
            _require("max_tokens", self.max_tokens, 0, INT_LIMIT)
            if self.min_tokens > self.max_tokens:
                raise ParamError("min_tokens", f"must not be above max_tokens {self.max_tokens}, got {self.min_tokens}")
        for param in ("logprobs", "prompt_logprobs"):
            if (count := getattr(self, param)) is not None:
                _require(param, count, 0, MAX_LOGPROBS)
        if not all(self.stop):
            raise ParamError("stop", "must not contain an empty string")
        if sum(map(len, self.stop)) > MAX_STOP_CHARACTERS:
            raise ParamError("stop", f"must not have more than {MAX_STOP_CHARACTERS} characters in all")
        if any(token < 0 for token in self.stop_token_ids):
            raise ParamError("stop_token_ids", "must not contain negative token ids")
        if len(self.logit_bias) > MAX_BIASES:
            raise ParamError("logit_bias", f"must not have more than {MAX_BIASES} tokens, got {len(self.logit_bias)}")
        for token, bias in self.logit_bias.items():
            if token < 0:
                raise ParamError("logit_bias", f"must not contain negative token ids, got {token}")
            _require("logit_bias", bias, -100, 100)

    def for_choice(self, choice: int) -> "SamplingParams":
        """The parameters of choice number `choice` of n, with a seed of its own (random if none was given)."""
        seed = secrets.randbits(63) if self.seed is None else self.seed + choice
        return msgspec.structs.replace(self, seed=seed % SEED_LIMIT, n=1)

    @property
    def greedy(self) -> bool:
        return self.temperature < _COLDEST

    @property
    def penalised(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def truncated(self) -> bool:
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


class SampledToken(NamedTuple):
    """A token; log-probabilities are of the unmodified distribution, None/empty unless asked for."""

    token: int
    logprob: float | None
    top: list[tuple[int, float]]


def sample(
    logits: Tensor,
    params: Sequence[SamplingParams],
    histories: Sequence[Sequence[int]],
    indices: Sequence[int],
    eos_token_ids: Sequence[int] = (),
    allowed: Mapping[int, Tensor] | None = None,
) -> list[SampledToken]:
    """One token for each row of float32 logits [B, vocab] (not modified).

    `histories[i]` are the request's token ids so far, prompt first; the last `indices[i]` of them were generated.
    `allowed[i]` bool [vocab] are the tokens that the grammar of row i leaves, at least one; other rows have none.
    Steps, in order: what is not allowed is ruled out, biases, penalties (repetition over prompt and output, presence
    and frequency over the output), temperature, min_p, top_k, top_p. Until `min_tokens` neither EOS nor a stop token
    can come, unless a grammar leaves nothing else.
    A sampling request needs a seed: see `SamplingParams.for_choice`.
    """
    adjusted = _adjust(logits, params, histories, indices, eos_token_ids, allowed or {})
    tokens = adjusted.argmax(dim=-1)
    drawn = [row for row, param in enumerate(params) if not param.greedy]
    if drawn:
        scaled = adjusted[drawn] / torch.tensor([params[row].temperature for row in drawn])[:, None]
        uniforms = torch.tensor([_uniform(params[row], indices[row]) for row in drawn], dtype=torch.float64)
        tokens[drawn] = _draw(scaled, [params[row] for row in drawn], uniforms)
    return _report(logits, params, tokens.tolist())


def _adjust(
    logits: Tensor,
    params: Sequence[SamplingParams],
    histories: Sequence[Sequence[int]],
    indices: Sequence[int],
    eos_token_ids: Sequence[int],
    allowed: Mapping[int, Tensor],
) -> Tensor:
    """Logits after penalties and bans; the same tensor if no request has any."""
    changed = [
        row
        for row, p in enumerate(params)
        if row in allowed or p.penalised or p.logit_bias or indices[row] < p.min_tokens
    ]
    if not changed:
        return logits
    adjusted = logits.clone()
    for row in changed:
        if row in allowed:
            adjusted[row].masked_fill_(~allowed[row], -math.inf)
        if bias := params[row].logit_bias:
            adjusted[row].index_add_(0, torch.tensor([*bias]), torch.tensor([*bias.values()]))
        if params[row].penalised:
            _penalise(adjusted[row], params[row], histories[row], indices[row])
        if indices[row] < params[row].min_tokens:
            _ban(adjusted[row], [*eos_token_ids, *params[row].stop_token_ids])
    return adjusted


def _ban(row: Tensor, tokens: Sequence[int]) -> None:
    """In place, unless it would leave nothing."""
    known = torch.tensor([token for token in tokens if token < len(row)], dtype=torch.int64)
    banned = row.index_fill(0, known, -math.inf)
    if banned.max() > -math.inf:
        row.copy_(banned)


def _penalise(row: Tensor, params: SamplingParams, history: Sequence[int], generated: int) -> None:
    """In place. Repetition as in CTRL (arXiv:1909.05858 §4.1); presence and frequency as OpenAI defines them."""
    seen = torch.tensor(history, dtype=torch.int64)
    if params.repetition_penalty != 1 and len(seen):
        ids = torch.unique(seen[seen < len(row)])  # a prompt's tokens for media may have no logits
        values = row[ids]
        row[ids] = torch.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if generated and (params.presence_penalty or params.frequency_penalty):
        ids, counts = torch.unique(seen[len(seen) - generated :], return_counts=True)
        row[ids] -= params.frequency_penalty * counts + params.presence_penalty


def _uniform(params: SamplingParams, index: int) -> float:
    if params.seed is None:
        raise ValueError("a sampling request needs a seed")
    return np.random.Generator(np.random.Philox(key=params.seed % SEED_LIMIT, counter=index)).random()


def _draw(logits: Tensor, params: Sequence[SamplingParams], uniforms: Tensor) -> Tensor:
    """Token ids [B] by inverse CDF; uniforms [B] in [0, 1)."""
    tokens = torch.empty(len(params), dtype=torch.int64)
    truncated = torch.tensor([p.truncated for p in params])
    plain = ~truncated
    if plain.any():
        tokens[plain] = _pick(logits[plain].softmax(-1), uniforms[plain])
    if truncated.any():
        chosen = [p for p in params if p.truncated]
        tokens[truncated] = _draw_truncated(logits[truncated], chosen, uniforms[truncated], CANDIDATES)
    return tokens


def _draw_truncated(logits: Tensor, params: Sequence[SamplingParams], uniforms: Tensor, candidates: int) -> Tensor:
    """As `_draw`, among the `candidates` highest logits; rows that need more of them are drawn from all."""
    vocab = logits.shape[1]
    top_k = torch.tensor([p.top_k if 0 < p.top_k < vocab else vocab for p in params])
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64)
    min_p = torch.tensor([p.min_p for p in params], dtype=torch.float64)
    count = min(vocab, candidates)
    values, ids = _highest(logits, count) if count < vocab else logits.sort(descending=True, stable=True)

    floor = values[:, 0].double() + min_p.log()
    rank = torch.arange(count)
    kept = (values >= floor[:, None]) & (rank < top_k[:, None])
    inside = values.double().masked_fill(~kept, -math.inf)
    total = inside.logsumexp(-1)
    beyond = kept[:, -1] & (top_k > count)  # the cut lies among lower logits, or there is none
    if beyond.any():
        lower = logits[beyond]
        total[beyond] = lower.masked_fill_(lower < floor[beyond, None], -math.inf).logsumexp(-1).double()
    probabilities = (inside - total[:, None]).exp()
    before = probabilities.cumsum(-1) - probabilities
    kept &= (before < top_p[:, None]) | (rank == 0)
    tokens = ids.gather(1, _pick(probabilities * kept, uniforms)[:, None])[:, 0]

    short = kept[:, -1] & beyond
    if count < vocab and short.any():
        rest = [p for p, is_short in zip(params, short.tolist(), strict=True) if is_short]
        tokens[short] = _draw_truncated(logits[short], rest, uniforms[short], vocab)
    return tokens


def _highest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """What `logits.topk(count)` gives, by a partition: many times faster for a thousand of a large vocabulary."""
    first = logits.shape[1] - count
    ids = torch.from_numpy(np.argpartition(logits.numpy(), first, axis=1)[:, first:])
    values, order = logits.gather(1, ids).sort(descending=True, stable=True)
    return values, ids.gather(1, order)


def _pick(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Index [B] of the entry of weights [B, n] in which uniform × total falls; never one of weight 0."""
    bounds = weights.cumsum(-1, dtype=torch.float64)
    total = bounds[:, -1]
    target = (uniforms * total).minimum(torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(bounds, target[:, None], right=True)[:, 0]
    return index.clamp_(max=weights.shape[1] - 1)  # NaN logits must not index out of range


def _report(logits: Tensor, params: Sequence[SamplingParams], tokens: Sequence[int]) -> list[SampledToken]:
    sampled = [SampledToken(token, None, []) for token in tokens]
    for row, param in enumerate(params):
        if param.logprobs is None:
            continue
        logprobs = logits[row].log_softmax(-1)
        values, ids = logprobs.topk(min(param.logprobs, len(logprobs)))
        top = list(zip(ids.tolist(), values.tolist(), strict=True))
        sampled[row] = SampledToken(tokens[row], float(logprobs[tokens[row]]), top)
    return sampled


def _require(name: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    """low ≤ value ≤ high, or low < value if `above`; NaN is never in range."""
    if (low < value if above else low <= value) and value <= high:
        return
    if high == INT_LIMIT:
        wanted = f"at least {low}"
    elif above:
        wanted = f"above {low} and at most {high}"
    else:
        wanted = f"between {low} and {high}"
    raise ParamError(name, f"must be {wanted}, got {value}")
