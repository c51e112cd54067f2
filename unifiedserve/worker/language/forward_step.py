"""Run the language model as a part of a step: prompt chunks and decode tokens in one forward pass."""

import time

from torch import Tensor

from unifiedserve.messages.wire import Span, Token
from unifiedserve.placement import Stage
from unifiedserve.scheduling import Chunk, Plan
from unifiedserve.scheduling.turn import Launched, Note, Stepped, Took
from unifiedserve.worker.language.decode import DecodeStage
from unifiedserve.worker.language.freed_pages import FreedPages
from unifiedserve.worker.language.model import LanguageModel
from unifiedserve.worker.language.prefill import PrefillStage
from unifiedserve.worker.language.prompt_reader import PromptReader
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.sampler import Key
from unifiedserve.worker.language.sender import Sender
from unifiedserve.worker.port import Port


class ForwardStep:
    """Run the chunks and sequences of a plan. The results go to decode and to the engine."""

    def __init__(
        self,
        model: LanguageModel,
        prefill: PrefillStage,
        decode: DecodeStage,
        prompts: PromptTable,
        hosted: frozenset[Stage],
        note: Note,
        freed: FreedPages,
        port: Port,
        sender: Sender,
    ) -> None:
        self._model = model
        self._prefill = prefill
        self._decode = decode
        self._prompts = prompts
        self._reader = PromptReader(model.adapter)
        self._takers = hosted & {Stage.PREFILL, Stage.DECODE}  # of KV pages
        self._note = note
        self._freed = freed
        self._port = port
        self._sender = sender
        self._decoded = float("-inf")  # when a step of decode ended last (monotonic seconds)

    @property
    def under_way(self) -> bool:
        """Tell whether steps of decode have been launched whose tokens are not there yet."""
        return bool(self._decode.ahead)

    @property
    def uids(self) -> set[int]:
        """Return the requests of these steps."""
        return self._decode.ahead.uids if self._decode.ahead else set()

    def run(self, plan: Plan, *, leaves_cores: bool = False) -> None:
        """Run what of the plan can be had pages for; it may have to leave half of the cores to others."""
        if self._decode.ahead is None:
            self._run_whole(plan, leaves_cores)
        elif plan.prefill:
            self.settle()
            self._run_whole(plan, leaves_cores)
        else:
            self._run_ahead(plan)

    def settle(self) -> None:
        """Wait for the steps of decode that are under way."""
        while self.under_way:
            self._collect()

    def _run_ahead(self, plan: Plan) -> None:
        """Launch a step of decode, and handle the results of the one before meanwhile."""
        self._decode.prepare()  # here, all tokens that came with the last step have been sent
        if self._decode.must_wait(plan.decode):
            self.settle()
        before = len(self._decode.ahead or ())
        self._decode.launch(plan.decode)
        self._begin(plan)
        for _ in range(before):
            self._collect()
        self._note(Launched(self._decode.streamed(plan.decode)))

    def _run_whole(self, plan: Plan, leaves_cores: bool) -> None:
        """Run chunks and sequences in one pass."""
        start = time.monotonic()
        decode = self._decode.rows(plan.decode, drafts=not plan.prefill)
        prefill = self._prefill.rows(plan.prefill)
        if not decode and not prefill:
            return
        self._begin(plan)
        self._model.adapter.give_way(leaves_cores)
        for chunk, _ in prefill:
            self._note(Took(chunk.uid))
        batch = [rows for _, rows in decode] + [rows for _, rows in prefill]
        hidden = self._model.run(batch)
        chunks, keys = [chunk for chunk, _ in prefill], [key for key, _ in decode]
        prompt_tokens = sum(chunk.stop - chunk.start for chunk in chunks)
        self._read_prompts(chunks, hidden[len(decode) :])
        logits = self._model.next_logits(batch, hidden)
        decoded = sum(rows.logits for _, rows in decode)
        if decode:
            tokens = self._decode.finish(decode, logits[:decoded])
            self._finish_decode(tokens, keys, start, drafted=decoded - len(keys))
        if prefill:
            self._finish_prefill(chunks, logits[decoded:], start, prompt_tokens)
        self._stepped(start, chunks, keys)

    def _collect(self) -> None:
        collected = self._decode.collect()
        start = max(collected.launched, self._decoded)  # it began when the one before it was done
        keys = list(collected.sequences)
        self._finish_decode(collected.tokens, keys, start, host=collected.host, eager=collected.eager)
        self._stepped(start, [], keys)

    def _stepped(self, start: float, chunks: list[Chunk], keys: list[Key]) -> None:
        end = time.monotonic()
        if keys:
            self._decoded = end
        beside = self._port.neighbours.work
        self._note(Stepped([start, end], chunks, keys, self._decode.streamed(keys), beside))

    def _begin(self, plan: Plan) -> None:
        for uid, since in self._decode.end_waits(plan.decode).items():
            self._port.reporter.waited(Stage.DECODE, uid, since)
        for chunk in plan.prefill:
            if prompt := self._prompts.get(chunk.uid):
                self._port.reporter.waited(Stage.PREFILL, chunk.uid, prompt.end_wait(Stage.PREFILL))
        for stage in self._takers:
            self._port.used(stage, self._model.kv.pool.used_pages())

    def _read_prompts(self, chunks: list[Chunk], hidden: list[Tensor]) -> None:
        for chunk, states in zip(chunks, hidden, strict=True):
            for message in self._reader.read(self._prompts[chunk.uid], chunk.start, states):
                self._port.outbox.to_engine(message)

    def _finish_decode(
        self,
        tokens: list[Token],
        keys: list[Key],
        start: float,
        *,
        host: float = 0.0,
        eager: bool = False,
        drafted: int = 0,
    ) -> None:
        self._port.reporter.tokens(tokens)
        if self._decode.take_released():
            self._freed.by_answers()
        accepted = max(0, len(tokens) - len(keys))
        self._port.reporter.record(
            Span(
                stage=Stage.DECODE,
                name="decode",
                start=start,
                end=time.monotonic(),
                requests=[uid for uid, _ in keys],
                tokens=len(keys) + accepted,
                host=host,
                eager=eager,
                drafted=drafted,
                accepted=accepted,
            )
        )

    def _finish_prefill(self, chunks: list[Chunk], logits: Tensor, start: float, tokens: int) -> None:
        prompts = [self._prompts[chunk.uid] for chunk in chunks]
        visual = any(prompt.shape.units for prompt in prompts)
        finished = self._prefill.finish(chunks, logits)
        self._sender.send_answers(finished.sequences)
        for host, room in finished.room:
            self._port.outbox.send(host, room)
        for prompt in prompts:
            if prompt.complete:
                self._sender.end_prompt(prompt)
            else:
                self._sender.send_full_pages(prompt)
        self._port.reporter.tokens(finished.tokens, finished.without_tokens)
        if visual:
            self._freed.by_prefill()
        if finished.without_tokens or any(token.finish for token in finished.tokens):
            self._freed.by_answers()
        self._port.reporter.span(Stage.PREFILL, "prefill", start, [chunk.uid for chunk in chunks], tokens)
