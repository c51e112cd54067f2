"""The training loop: one recipe, resumable at any step, with its curves in a file of JSON lines."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from unifiedserve.demo.training.batches import EXAMINATION, Batch, Batches, Lesson, Lessons, in_background
from unifiedserve.demo.training.checkpoint import bundled_config, make_model, write_description, write_weights
from unifiedserve.demo.training.network import Heads, Network, seen_loss, understood_loss
from unifiedserve.demo.training.progress import shares_right
from unifiedserve.demo.training.prompts import IGNORED
from unifiedserve.demo.world.sampling import Recipe

SHORT, ANY = Recipe((1, 2), (2.0, 8.0)), Recipe((1, 4), (2.0, 16.0))
CURRICULUM = (
    (0.0, Lesson(ANY, stills=0.5, long=0.0, talks=0)),  # the vision tower alone
    (0.30, Lesson(SHORT, stills=0.5, long=0.0, talks=8)),
    (0.40, Lesson(ANY, stills=0.25, long=0.0, talks=8)),
    (0.80, Lesson(ANY, stills=0.2, long=0.15, talks=8)),
)
STATE, CURVES = "state.pt", "curves.jsonl"


@dataclass(frozen=True)
class Options:
    """`steps` is the whole run; a run that was interrupted goes on from its last saved state."""

    steps: int = 8000  # two and a half hours of two cores
    seed: int = 0
    rate: float = 1.5e-3
    warmup: int = 150
    device: str = "cpu"
    workers: int = 1
    fast: bool = True  # compile; the first steps take minutes
    save_seconds: float = 300.0
    exam_every: int = 250
    exam_batches: int = 6
    stop_at: int | None = None  # a step before the last at which to save and end
    minutes: float | None = None  # after which to save and end


class Trainer:
    """`directory` gets the checkpoint's files, the state to go on from, and the curves."""

    def __init__(self, directory: Path, options: Options) -> None:
        self.directory, self.options = directory, options
        tokenizer = write_description(directory)
        lessons = Lessons(options.steps, CURRICULUM)
        pool = directory / "pool"
        pool.mkdir(exist_ok=True)
        self._batches = Batches(tokenizer, lessons, options.seed, pool)
        self._exams = Batches(tokenizer, lessons, options.seed, pool, EXAMINATION)
        config = bundled_config(tokenizer)
        self.model: Any = make_model(config, options.seed).to(options.device)
        self._network = Network(self.model, options.fast).to(options.device)
        torch.manual_seed(options.seed)
        self.heads = Heads(config["hidden_size"]).to(options.device)
        self.optimizer = torch.optim.AdamW(self._groups(), lr=options.rate, betas=(0.9, 0.98), fused=True)
        self.step = 0
        if (directory / STATE).exists():
            self._load()

    def run(self) -> None:
        """Train to the end, or until told to stop; saves the state and the weights now and then and at the end."""
        options = self.options
        end = min(options.steps, options.stop_at or options.steps)
        saved = started = time.monotonic()
        sums: dict[str, float] = {}
        for batch in in_background(self._batches, range(self.step, end), options.workers):
            for name, value in self._learn(batch).items():
                sums[name] = sums.get(name, 0.0) + value
            self.step += 1
            if self.step % 25 == 0:
                seconds = time.monotonic() - started
                self._log({name: value / 25 for name, value in sums.items()} | {"seconds": seconds})
                sums = {}
            if self.step % options.exam_every == 0:
                self._log({"exam": self.exam()})
            if options.minutes and time.monotonic() - started > 60 * options.minutes:
                break
            if time.monotonic() - saved > options.save_seconds:
                self.save()
                saved = time.monotonic()
        self.save()

    def exam(self) -> dict[str, float]:
        """Shares of right answers by category, on scenes that are never trained on."""
        lesson_step = max(self.step, 1)
        batches = (self._exams[lesson_step * 1000 + i] for i in range(self.options.exam_batches))
        return shares_right(batches, self._forward)

    def save(self) -> None:
        """The state to go on from, and the weights so far."""
        state = {"step": self.step, "model": self.model.state_dict(), "heads": self.heads.state_dict()}
        part = self.directory / f"{STATE}.part"
        torch.save(state | {"optimizer": self.optimizer.state_dict()}, part)
        part.rename(self.directory / STATE)
        write_weights(self.directory, self.model)

    def _load(self) -> None:
        state = torch.load(self.directory / STATE, map_location=self.options.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.heads.load_state_dict(state["heads"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def _groups(self) -> list[dict[str, Any]]:
        """Only matrices decay."""
        parameters = [*self.model.parameters(), *self.heads.parameters()]
        matrices = [parameter for parameter in parameters if parameter.dim() > 1]
        others = [parameter for parameter in parameters if parameter.dim() <= 1]
        return [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]

    def _learn(self, batch: Batch) -> dict[str, float]:
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.rate * schedule(self.step, self.options.steps, self.options.warmup)
        loss, values = self._losses(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        self.optimizer.step()
        return values

    def _losses(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        visual, logits, hidden = self._forward(batch)
        labels = {name: value.to(self.options.device) for name, value in batch.labels.items()}
        loss, values = seen_loss(self.heads, visual, labels)
        values["seen"] = float(loss.detach())
        if logits is None or hidden is None:
            return loss, values
        targets = batch.sequences["targets"]
        answers = functional.cross_entropy(logits.float(), targets[targets != IGNORED].to(logits.device))
        knowing = understood_loss(self.heads, hidden, labels, batch.kind)
        values |= {"answers": float(answers.detach()), "understood": float(knowing.detach())}
        return answers + 0.5 * loss + 0.2 * knowing, values

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Visual tokens; logits and inner states if there are questions (see Network)."""
        batch = batch.to(self.options.device)
        with torch.autocast(self.options.device, torch.bfloat16):
            visual = self._network.encode(batch)
            logits, hidden = self._network.read(batch, visual) if batch.turns else (None, None)
        return visual, logits, hidden

    def _log(self, values: dict[str, Any]) -> None:
        line = json.dumps({"step": self.step} | values)
        with (self.directory / CURVES).open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)


def schedule(step: int, steps: int, warmup: int) -> float:
    """The learning rate's factor: a linear warm-up, then half a cosine down to a fiftieth."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))
