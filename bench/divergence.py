"""How far a served model's distributions of the next token are from those of the same weights in float32."""

import gc
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from loaded_model import loaded
from torch import Tensor

from ipc_buffers import PagePool
from training.recipe.clips import Source, drawn
from training.world.questions import ASKERS, ask
from training.world.sampling import Recipe, sample_scene
from unifiedserve.attention import RaggedBatch
from unifiedserve.config import EngineConfig
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of
from unifiedserve.messages.media import ExpandedPrompt, MediaOptions
from unifiedserve.models.registry import load_processor

WINDOW = 512  # tokens of a text that see each other
SEED = 2**31 + 2  # scenes of this seed are neither trained on nor examined
SCENE, SHAPE = Recipe(seconds=(3.0, 8.0)), Source(320, 240, 15.0)
PAGES, PAGE_TOKENS = 256, 16


class Passage(NamedTuple):
    """Tokens of which those from `start` on are to be predicted; patches of its clip, if it has one."""

    prompt: ExpandedPrompt
    start: int
    patches: Tensor | None = None


@dataclass
class Divergence:
    """Means over the predicted tokens of all passages."""

    weights_bytes: int
    tokens: int = 0
    kl: float = 0.0  # from float32's distribution to this one, nats a token
    agreement: float = 0.0  # share of tokens of which the likeliest is float32's
    loss: float = 0.0  # nats a token

    def add(self, logprobs: Tensor, reference: Tensor, targets: Tensor) -> None:
        """Take in a passage: log probabilities [n, vocab] here and in float32, and the tokens [n] that came."""
        before, self.tokens = self.tokens, self.tokens + len(targets)
        totals = {
            "kl": (reference.exp() * (reference - logprobs)).sum(),
            "agreement": (reference.argmax(1) == logprobs.argmax(1)).sum(),
            "loss": -logprobs.gather(1, targets[:, None]).sum(),
        }
        for name, total in totals.items():
            setattr(self, name, (getattr(self, name) * before + float(total)) / self.tokens)

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss)


class Model:
    """A checkpoint as a daemon with these options serves it, with room for one passage."""

    def __init__(self, model_dir: Path, config: EngineConfig, stack: ExitStack) -> None:
        self._adapter, self.weights_bytes = stack.enter_context(loaded(model_dir, config))
        layout = KVLayout.of(self._adapter.config, PAGE_TOKENS, name_of(self._adapter.dtype))
        pool = PagePool.create(f"bench-divergence-{os.getpid()}-kv", PAGES, layout.page_bytes)
        stack.callback(pool.unlink)
        self._kv = KVCache(pool, layout)

    def logprobs(self, passage: Passage) -> Tensor:
        """Return float32 [n, vocab]: what is said of each token that is to be predicted, before it comes."""
        tokens, media = passage.prompt.token_ids[:-1], passage.prompt.media
        adapter, count = self._adapter, len(tokens)
        span = self._kv.span(range(PAGES), 0, count, count + 1 - passage.start)
        units = [(plan, range(plan.units)) for plan in media]
        visual = None if passage.patches is None else adapter.visual_tokens(passage.patches, units)
        ids = torch.tensor(tokens)
        embeds = adapter.embed(ids, visual, torch.isin(ids, torch.tensor(sorted(adapter.visual_ids))))
        batch = RaggedBatch.build([span], PAGE_TOKENS)
        hidden = adapter.forward(embeds, adapter.positions(tokens, media), batch, self._kv)
        return adapter.logits(hidden).log_softmax(-1)


def diverge(model_dir: Path, passages: Sequence[Passage], schemes: Mapping[str, EngineConfig]) -> dict[str, Divergence]:
    """Run the passages through the checkpoint by one scheme after another, of which the first is the reference."""
    references: list[Tensor] = []
    return {name: _run(model_dir, passages, config, references) for name, config in schemes.items()}


def _run(model_dir: Path, passages: Sequence[Passage], config: EngineConfig, references: list[Tensor]) -> Divergence:
    """Hold the passages against their references, which the first run makes."""
    with ExitStack() as stack:
        model = Model(model_dir, config, stack)
        found = Divergence(model.weights_bytes)
        for number, passage in enumerate(passages):
            logprobs = model.logprobs(passage)
            references += [logprobs] * (number == len(references))
            found.add(logprobs, references[number], torch.tensor(passage.prompt.token_ids[passage.start :]))
    del model
    gc.collect()  # modules refer to each other, and to the weights
    return found


def prose(model_dir: Path, text: str, tokens: int) -> list[Passage]:
    """Return the first `tokens` tokens of a text, in windows."""
    ids = load_processor(model_dir).tokenizer(text)["input_ids"][:tokens]
    windows = (ids[start : start + WINDOW] for start in range(0, len(ids), WINDOW))
    return [Passage(ExpandedPrompt(window, [], []), 1) for window in windows if len(window) > 1]


def answers(model_dir: Path, tokens: int) -> list[Passage]:
    """Return right answers about clips that the bundled model never saw, about so many tokens of them."""
    passages: list[Passage] = []
    for passage in _answers(model_dir):
        passages.append(passage)
        if sum(len(each.prompt.token_ids) - each.start for each in passages) >= tokens:
            break
    return passages


def _answers(model_dir: Path) -> Iterator[Passage]:
    processor = load_processor(model_dir)
    for number in itertools.count():
        scene, rng = sample_scene(SCENE, (SEED, number), SHAPE.width / SHAPE.height), np.random.default_rng(number)
        plan = processor.plan_video(SHAPE.info(scene), MediaOptions())
        patches = torch.from_numpy(drawn(scene, SHAPE).rows)
        for turn in filter(None, (ask(scene, rng, category) for category in ASKERS)):
            asked = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": turn.question}]}]
            prompt = processor.prompt(asked, [plan])
            end = [*processor.tokenizer(turn.answer)["input_ids"], processor.eos_token_ids[0]]
            told = msgspec.structs.replace(prompt, token_ids=[*prompt.token_ids, *end])
            yield Passage(told, len(prompt.token_ids), patches)
