"""The language lane: encode, prefill and decode, mixed by one policy.

An instance that does not host a stage is never sent work for it.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor

from unifiedserve.config import Stage
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages import Embeddings, Message, PagesFreed, Patches, Preempted, Request, Sequence, Stale
from unifiedserve.scheduling import (
    Budget,
    Chunk,
    Costs,
    EncodeWork,
    Pace,
    Plan,
    State,
    learn_encode,
    learn_step,
    policy_for,
)
from unifiedserve.stages.decode import DecodeStage
from unifiedserve.stages.encode import EncodeStage
from unifiedserve.stages.lane import AT_ONCE
from unifiedserve.stages.language import LanguageModel
from unifiedserve.stages.port import Port
from unifiedserve.stages.prefill import PrefillStage
from unifiedserve.stages.prompt import Prompt
from unifiedserve.stages.prompt_reader import PromptReader
from unifiedserve.stages.sampler import Key

_log = logging.getLogger(__name__)


class LanguageLane:
    """One step is: run prompt chunks and decode tokens in one forward pass, then encode a batch of units."""

    def __init__(
        self,
        model: LanguageModel,
        visual: RowBuffer,
        encode: EncodeStage,
        prefill: PrefillStage,
        decode: DecodeStage,
        hosted: frozenset[Stage],
        budget: Budget,
        port: Port,
    ) -> None:
        self._model = model
        self._visual = visual
        self._encode = encode
        self._prefill = prefill
        self._decode = decode
        self._reader = PromptReader(model.adapter)
        self._hosted = hosted
        self._policy = policy_for(hosted)
        self._budget = budget
        self._port = port
        self._costs = Costs()
        self._pace = Pace()
        self._prompts: dict[int, Prompt] = {}

    def accept(self, message: Message) -> None:
        match message:
            case Request():
                with self._guard([message.uid]):
                    self._accept_request(message)
            case Patches():
                self._encode.accept(message, self._prompts.get(message.uid))
                self._port.queued(Stage.ENCODE, message.uid)
            case Embeddings():
                self._prefill.accept(message, self._prompts.get(message.uid))
                self._port.queued(Stage.PREFILL, message.uid)
            case Sequence():
                self._decode.accept(message)
                self._port.queued(Stage.DECODE, message.uid)

    def step(self) -> float:
        self._renew_prefixes()
        plan = self._policy(self._state(), self._budget)
        self._tell(plan)
        if plan.preempt:
            self._preempt(plan.preempt)
        if plan.prefill or plan.decode:
            with self._guard([chunk.uid for chunk in plan.prefill] + [uid for uid, _ in plan.decode]):
                self._run_language(plan)
        self._report_caches()
        if plan.encode:
            self._port.flush(self.counts())  # tokens do not wait for the encoder
            with self._guard(work.uid for work in plan.encode):
                self._recall(plan.encode)
                self._run_encode(plan.encode)
            self._report_caches()
        return AT_ONCE if plan.has_work else plan.wait_until

    def drop(self, uid: int, index: int | None = None) -> None:
        keys = [key for key in self._decode.sequences if key[0] == uid and index in (None, key[1])]
        for key in keys:
            self._decode.drop(key)
        if keys:
            self._sequences_ended()
        if index is None:
            self._port.forget(uid)
        if index is None and uid in self._prompts:
            self._encode.drop(self._prompts.pop(uid))
            self._prefill.drop(uid)
            self._reader.drop(uid)
        if index is None:  # also for patches that came after the request had failed
            self._port.send(Stage.VISION, PagesFreed())

    def counts(self) -> dict[Stage, tuple[int, int]]:
        states = [prompt.state for prompt in self._prompts.values()]
        encoding = [state.reserved for state in states if not all(unit.encoded for unit in state.units)]
        prefilling = [state.admitted for state in states]
        held = len(self._decode.sequences)
        running = {
            Stage.ENCODE: (sum(encoding), len(encoding)),
            Stage.PREFILL: (sum(prefilling), len(prefilling)),
            Stage.DECODE: (min(held, self._budget.max_running), held),
        }
        return {stage: (n, total - n) for stage, (n, total) in running.items() if stage in self._hosted}

    def close(self) -> None:
        """Nothing runs beside the loop; pages are the engine's to reclaim."""

    def _accept_request(self, request: Request) -> None:
        kv = self._model.kv
        kv_pages = kv.pages_for(len(request.token_ids))
        changing = kv.pages_for(len(request.token_ids) % kv.page_size)
        kv_pages += changing * (len(request.indices) - 1)  # each further answer needs its own
        adapter = self._model.adapter
        visual_pages = self._visual.pages_for
        prompt = Prompt.receive(request, adapter.visual_ids, kv_pages, visual_pages, adapter.whole_runs)
        self._prompts[request.uid] = prompt
        self._prefill.start(prompt)
        if all(unit.encoded for unit in prompt.state.units):
            self._port.queued(Stage.PREFILL, request.uid)

    def _renew_prefixes(self) -> None:
        """What waiting requests may reuse is theirs only when they are let in: until then others may take it."""
        waiting = [p for p in self._prompts.values() if p.request.reuse.prefix.numbers and not p.state.admitted]
        for prompt in waiting:
            if not self._prefill.renew(prompt):
                self._start_anew(prompt.state.uid)

    def _start_anew(self, uid: int) -> None:
        self._port.to_engine(Stale(uid))
        self.drop(uid)

    def _state(self) -> State:
        pool = self._model.kv.pool
        prompts = sorted(self._prompts.values(), key=lambda p: p.state.turn)
        return State(
            prefills=[prompt.state for prompt in prompts],
            decodes=self._decode.states(),
            kv_free=pool.free_pages(),
            kv_total=pool.num_pages,
            visual_free=self._encode.visual_free,
            now=time.monotonic(),
            pace=self._pace._replace(
                others_work=self._port.others_work, waiting=self._port.others_wait, joining=self._port.others_join
            ),
            costs=self._costs,
        )

    def _report_caches(self) -> None:
        """In the same report as the tokens: a client's next request may need what this one left."""
        for stage in (self._encode, self._prefill, self._decode):
            self._port.cached(*stage.log.take())

    def _tell(self, plan: Plan) -> None:
        """Let the other workers know what this one is about to do, so that they can pace themselves."""
        if Stage.ENCODE in self._hosted:
            self._port.working(Stage.ENCODE, bool(plan.encode))
        if Stage.PREFILL in self._hosted:
            self._port.working(Stage.PREFILL, bool(plan.prefill))
            states = [(chunk, self._prompts[chunk.uid].state) for chunk in plan.prefill]
            joining = any(not state.admitted and chunk.stop == state.num_tokens for chunk, state in states)
            self._port.waiting(len(self._prompts), joining)

    def _recall(self, work: list[EncodeWork]) -> None:
        """Units whose visual tokens are there go on to prefill as if they had just been encoded."""
        embeddings, stale = self._encode.recall(work, self._prompts)
        for message in embeddings:
            self._port.send(Stage.PREFILL, message)
        for uid in stale:
            self._start_anew(uid)

    def _run_encode(self, scheduled: list[EncodeWork]) -> None:
        """What the cache did not have."""
        work = [
            EncodeWork(uid, units)
            for uid, all_units in scheduled
            if (prompt := self._prompts.get(uid))
            and (units := [unit for unit in all_units if unit not in prompt.request.reuse.units])
        ]
        if not work:
            return
        start = time.monotonic()
        for uid, _ in work:
            self._port.dequeued(Stage.ENCODE, uid)
        for message in self._encode.step(work, self._prompts):
            self._port.send(Stage.PREFILL, message)
        tokens = sum(self._prompts[uid].state.units[unit].tokens for uid, units in work for unit in units)
        learn_encode(self._costs, tokens, time.monotonic() - start)
        self._port.used(Stage.ENCODE, self._visual.pool.used_pages())
        self._port.send(Stage.VISION, PagesFreed())
        self._port.span(Stage.ENCODE, "encode", start, [uid for uid, _ in work])

    def _preempt(self, keys: list[Key]) -> None:
        for key in keys:
            self._decode.drop(key)
            self._port.to_engine(Preempted(*key))
        self._sequences_ended()

    def _sequences_ended(self) -> None:
        """Their pages are free."""
        self._port.send(Stage.PREFILL, PagesFreed())
        if self._model.adapter.keeps_visual_rows:
            self._port.send(Stage.ENCODE, PagesFreed())

    def _run_language(self, plan: Plan) -> None:
        start = time.monotonic()
        decode = self._decode.rows(plan.decode)
        prefill = self._prefill.rows(plan.prefill, self._prompts)
        if not decode and not prefill:
            return
        for uid, _ in plan.decode:
            self._port.dequeued(Stage.DECODE, uid)
        for chunk in plan.prefill:
            self._port.dequeued(Stage.PREFILL, chunk.uid)
        for stage in self._hosted & {Stage.PREFILL, Stage.DECODE}:
            self._port.used(stage, self._model.kv.pool.used_pages())
        self._model.share_cores(self._port.others_work and not prefill)
        batch = [rows for _, rows in decode] + [rows for _, rows in prefill]
        hidden = self._model.run(batch)
        self._read_prompts([chunk for chunk, _ in prefill], hidden[len(decode) :])
        logits = self._model.next_logits(batch, hidden)
        if decode:
            self._finish_decode([key for key, _ in decode], logits[: len(decode)], start)
        if prefill:
            self._finish_prefill([chunk for chunk, _ in prefill], logits[len(decode) :], start)
        ended = time.monotonic()
        if decode:
            self._pace = Pace(start, ended)
        learn_step(self._costs, len(decode), sum(chunk.stop - chunk.start for chunk, _ in prefill), ended - start)

    def _read_prompts(self, chunks: list[Chunk], hidden: list[Tensor]) -> None:
        for chunk, states in zip(chunks, hidden, strict=True):
            for message in self._reader.read(self._prompts[chunk.uid].request, chunk.start, states):
                self._port.to_engine(message)

    def _finish_decode(self, keys: list[Key], logits: Tensor, start: float) -> None:
        tokens = self._decode.finish(keys, logits)
        self._port.tokens(tokens)
        if any(token.finish for token in tokens):
            self._sequences_ended()
        self._port.span(Stage.DECODE, "decode", start, [uid for uid, _ in keys])

    def _finish_prefill(self, chunks: list[Chunk], logits: Tensor, start: float) -> None:
        finished = self._prefill.finish(chunks, logits, self._prompts)
        for sequence in finished.sequences:
            self._port.send(Stage.DECODE, sequence)
        self._port.tokens(finished.tokens, finished.without_tokens)
        for uid in finished.complete:
            self._encode.drop(self._prompts.pop(uid))
        self._port.send(Stage.ENCODE, PagesFreed())
        self._port.span(Stage.PREFILL, "prefill", start, [chunk.uid for chunk in chunks])

    @contextmanager
    def _guard(self, uids: Iterable[int]) -> Iterator[None]:
        """A defect in a step ends the requests in its batch, never the worker."""
        try:
            yield
        except Exception as error:
            _log.exception("a step failed")
            affected = sorted(set(uids))
            self._port.fail(affected, f"internal error: {error}", 500)
            for uid in affected:
                self.drop(uid)
