"""The training loop: one recipe, resumable at any step, with its curves in a file of JSON lines."""

import json
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.recipe.batches import EXAMINATION, Batch, Batches, Lesson, Lessons, in_background
from training.recipe.checkpoint import bundled_config, make_model, write_description, write_weights
from training.recipe.heads import Heads, pointing_loss, seen_loss, told_loss, understood_loss
from training.recipe.network import Network, Reading
from training.recipe.progress import shares_right
from training.recipe.prompts import IGNORED
from training.world.sampling import Recipe
from unifiedserve.device.cpu import CPU

SHORT, ANY = Recipe((1, 2), (2.0, 8.0)), Recipe((1, 4), (2.0, 16.0))
CURRICULUM = (
    (0.0, Lesson(ANY, stills=0.5, long=0.0, asks=False)),  # the vision tower alone
    (0.20, Lesson(SHORT, stills=0.5, long=0.0)),
    (0.25, Lesson(ANY, stills=0.25, long=0.0)),
    (0.45, Lesson(ANY, stills=0.2, long=0.25)),
)
INSIDE = re.compile(r"(blocks|layers|merger)\.")  # names of parameters inside of layers
STATE, CURVES = "state.pt", "curves.jsonl"


@dataclass(frozen=True)
class Options:
    """The options of a run of `steps` in all; an interrupted one goes on from its last saved state."""

    steps: int = 6000  # two and a half to three hours of two cores
    seed: int = 0
    rate: float = 1.5e-3
    inner_rate: float = 5e-3  # rate of the matrices inside of layers
    warmup: int = 150
    device: str = "cpu"
    workers: int = 1
    fast: bool = True  # compile; the first step takes a minute
    save_seconds: float = 300.0
    exam_every: int = 500
    exam_batches: int = 6
    stop_at: int | None = None  # step before the last one at which to save and end
    minutes: float | None = None  # minutes after which to save and end


class Trainer:
    """A training run; `directory` gets the checkpoint's files, the state to go on from, and the curves."""

    def __init__(self, directory: Path, options: Options) -> None:
        self.directory, self.options = directory, options
        tokenizer = write_description(directory)
        lessons = Lessons(options.steps, CURRICULUM)
        self._asking = next(step for step in range(options.steps) if lessons.at(step).asks)
        pool = directory / "pool"
        pool.mkdir(exist_ok=True)
        self._batches = Batches(tokenizer, lessons, options.seed, pool)
        self._exams = Batches(tokenizer, lessons, options.seed, pool, EXAMINATION)
        config = bundled_config(tokenizer)
        self.model: Any = make_model(config, options.seed).to(options.device)
        self._dtype = torch.bfloat16 if options.device != "cpu" else getattr(torch, CPU.best_dtype())
        self._network = Network(self.model, options.fast, self._dtype).to(options.device)
        torch.manual_seed(options.seed)
        self.heads = Heads(config["hidden_size"]).to(options.device)
        self.optimizers = self._make_optimizers()
        self.step = 0
        if (directory / STATE).exists():
            self._load()

    def run(self) -> None:
        """Train to the end, or until told to stop; save the state and the weights now and then and at the end."""
        options = self.options
        end = min(options.steps, options.stop_at or options.steps)
        saved = started = time.monotonic()
        sums: dict[str, list[float]] = {}
        for batch in in_background(self._batches, range(self.step, end), options.workers):
            for name, value in self._learn(batch).items():
                sums.setdefault(name, []).append(value)
            self.step += 1
            if self.step % 25 == 0:
                seconds = time.monotonic() - started
                self._log({name: sum(values) / len(values) for name, values in sums.items()} | {"seconds": seconds})
                sums = {}
            if self.step % options.exam_every == 0 and self.step > self._asking:
                self._log({"exam": self.exam()})
            if options.minutes and time.monotonic() - started > 60 * options.minutes:
                break
            if time.monotonic() - saved > options.save_seconds:
                self.save()
                saved = time.monotonic()
        self.save()

    def exam(self) -> dict[str, float]:
        """Return the shares of right answers by category, on scenes that are never trained on."""
        lesson_step = max(self.step, 1)
        batches = (self._exams[lesson_step * 1000 + i] for i in range(self.options.exam_batches))
        return shares_right(batches, self._forward)

    def save(self) -> None:
        """Save the state to go on from, and the weights so far."""
        state = {"step": self.step, "model": self.model.state_dict(), "heads": self.heads.state_dict()}
        part = self.directory / f"{STATE}.part"
        torch.save(state | {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}, part)
        part.rename(self.directory / STATE)
        write_weights(self.directory, self.model)

    def _load(self) -> None:
        state = torch.load(self.directory / STATE, map_location=self.options.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.heads.load_state_dict(state["heads"])
        for optimizer, own in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)
        self.step = state["step"]
        self._forget_later()

    def _forget_later(self) -> None:
        """Take out of the curves what an interrupted run did after it was saved, because it is done again."""
        curves = self.directory / CURVES
        if curves.exists():
            lines = curves.read_text().splitlines(keepends=True)
            whole = (line for line in lines if line.endswith("\n"))
            curves.write_text("".join(line for line in whole if json.loads(line)["step"] <= self.step))

    def _make_optimizers(self) -> list[torch.optim.Optimizer]:
        """Make Muon (Jordan et al., 2024) for the matrices inside of layers, AdamW for all else."""
        inner: list[nn.Parameter] = []
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in [*self.model.named_parameters(), *self.heads.named_parameters()]:
            if parameter.dim() == 1:
                others.append(parameter)
            else:
                (inner if INSIDE.search(name) else matrices).append(parameter)
        groups = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
        return [
            torch.optim.Muon(inner, lr=self.options.inner_rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(groups, lr=self.options.rate, betas=(0.9, 0.98), fused=True),
        ]

    def _learn(self, batch: Batch) -> dict[str, float]:
        factor = schedule(self.step, self.options.steps, self.options.warmup, self._asking)
        loss, values = self._losses(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_([*self.model.parameters(), *self.heads.parameters()], 1.0)
        for optimizer, rate in zip(self.optimizers, (self.options.inner_rate, self.options.rate), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return values

    def _losses(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        visual, reading = self._forward(batch)
        labels = {name: value.to(self.options.device) for name, value in batch.labels.items()}
        loss, values = seen_loss(self.heads, visual, labels)
        values["seen"] = float(loss.detach())
        if reading is None:
            return loss, values
        targets = batch.sequences["targets"]
        answers = functional.cross_entropy(reading.logits.float(), targets[targets != IGNORED].to(visual.device))
        knowing = understood_loss(self.heads, reading.inner, labels, batch.kind)
        pointing = pointing_loss(reading.pointed, reading.wanted, labels)
        told = told_loss(self.heads, reading.text, reading.wanted, labels)
        parts = {"answers": answers, "understood": knowing, "pointing": pointing, "told": told}
        values |= {name: float(part.detach()) for name, part in parts.items()}
        return answers + 0.5 * loss + 0.3 * knowing + 0.1 * pointing + 0.3 * told, values

    def _forward(self, batch: Batch) -> tuple[Tensor, Reading | None]:
        """Return visual tokens, and what reading gives if there are questions."""
        batch = batch.to(self.options.device)
        with torch.autocast(self.options.device, self._dtype, enabled=self._dtype != torch.float32):
            visual = self._network.encode(batch)
            return visual, self._network.read(batch, visual) if batch.turns else None

    def _log(self, values: dict[str, Any]) -> None:
        line = json.dumps({"step": self.step} | values)
        with (self.directory / CURVES).open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)


def schedule(step: int, steps: int, warmup: int, asking: int) -> float:
    """Return the rate's factor: half a cosine down to a fiftieth; a linear warm-up at first and from `asking` on."""
    since = step - asking if step >= asking else step
    warm = min(1.0, (since + 1) / warmup)
    return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
