"""The part of a step that runs the language model: prompt chunks and decode tokens in one forward pass."""

import time

from torch import Tensor

from unifiedserve.config import Stage
from unifiedserve.scheduling import Chunk, Plan
from unifiedserve.worker.language.decode import DecodeStage
from unifiedserve.worker.language.freed_pages import FreedPages
from unifiedserve.worker.language.measured import Measured
from unifiedserve.worker.language.model import LanguageModel
from unifiedserve.worker.language.prefill import PrefillStage
from unifiedserve.worker.language.prompt_reader import PromptReader
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.sampler import Key
from unifiedserve.worker.port import Port


class ForwardStep:
    """Runs the chunks and sequences of a plan, and sends what they give to decode and to the engine."""

    def __init__(
        self,
        model: LanguageModel,
        prefill: PrefillStage,
        decode: DecodeStage,
        prompts: PromptTable,
        hosted: frozenset[Stage],
        measured: Measured,
        freed: FreedPages,
        port: Port,
    ) -> None:
        self._model = model
        self._prefill = prefill
        self._decode = decode
        self._prompts = prompts
        self._reader = PromptReader(model.adapter)
        self._takers = hosted & {Stage.PREFILL, Stage.DECODE}  # of KV pages
        self._measured = measured
        self._freed = freed
        self._port = port

    def run(self, plan: Plan) -> None:
        """Run what of the plan can be had pages for."""
        start = time.monotonic()
        decode = self._decode.rows(plan.decode)
        prefill = self._prefill.rows(plan.prefill)
        if not decode and not prefill:
            return
        self._begin(plan)
        self._model.adapter.device.sharing.give_way(self._port.neighbours.work and not prefill)
        batch = [rows for _, rows in decode] + [rows for _, rows in prefill]
        hidden = self._model.run(batch)
        chunks = [chunk for chunk, _ in prefill]
        prompt_tokens = sum(chunk.stop - chunk.start for chunk in chunks)
        self._read_prompts(chunks, hidden[len(decode) :])
        logits = self._model.next_logits(batch, hidden)
        if decode:
            self._finish_decode([key for key, _ in decode], logits[: len(decode)], start)
        if prefill:
            self._finish_prefill(chunks, logits[len(decode) :], start, prompt_tokens)
        self._measured.stepped(len(decode), prompt_tokens, start, time.monotonic())

    def _begin(self, plan: Plan) -> None:
        for uid, _ in plan.decode:
            self._port.reporter.waited(Stage.DECODE, uid, self._decode.end_wait(uid))
        for chunk in plan.prefill:
            if prompt := self._prompts.get(chunk.uid):
                self._port.reporter.waited(Stage.PREFILL, chunk.uid, prompt.end_wait(Stage.PREFILL))
        for stage in self._takers:
            self._port.neighbours.tell_used(stage, self._model.kv.pool.used_pages())

    def _read_prompts(self, chunks: list[Chunk], hidden: list[Tensor]) -> None:
        for chunk, states in zip(chunks, hidden, strict=True):
            for message in self._reader.read(self._prompts[chunk.uid], chunk.start, states):
                self._port.outbox.to_engine(message)

    def _finish_decode(self, keys: list[Key], logits: Tensor, start: float) -> None:
        tokens = self._decode.finish(keys, logits)
        self._port.reporter.tokens(tokens)
        if any(token.finish for token in tokens):
            self._freed.by_answers()
        self._port.reporter.span(Stage.DECODE, "decode", start, [uid for uid, _ in keys], len(keys))

    def _finish_prefill(self, chunks: list[Chunk], logits: Tensor, start: float, tokens: int) -> None:
        finished = self._prefill.finish(chunks, logits)
        for generation in finished.generations:
            self._port.outbox.send(Stage.DECODE, generation)
        self._port.reporter.tokens(finished.tokens, finished.without_tokens)
        self._freed.by_prefill()
        self._port.reporter.span(Stage.PREFILL, "prefill", start, [chunk.uid for chunk in chunks], tokens)
