"""The language lane: encode, prefill and decode, mixed by one policy.

An instance that does not host a stage is never sent work for it, and plans none.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from unifiedserve.config import Stage
from unifiedserve.errors import ErrorKind
from unifiedserve.messages.wire import (
    Abort,
    Embeddings,
    Generation,
    Message,
    Patches,
    Preempted,
    PrefillRequest,
    Rehearse,
    Stale,
)
from unifiedserve.scheduling import (
    Budget,
    EncodeWork,
    HeldStreams,
    Plan,
    State,
    TbtControl,
    goes_between,
    heavy_within_share,
    joins_soon,
    policy_for,
    schedule_in_between,
    within_share,
)
from unifiedserve.worker.lane import AT_ONCE, ON_MESSAGE
from unifiedserve.worker.language.encode_step import EncodeStep
from unifiedserve.worker.language.forward_step import ForwardStep
from unifiedserve.worker.language.freed_pages import FreedPages
from unifiedserve.worker.language.measured import Measured
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.rehearsal import rehearse
from unifiedserve.worker.language.sampler import Key
from unifiedserve.worker.language.stages import LanguageStages
from unifiedserve.worker.port import Port

_log = logging.getLogger(__name__)


class LanguageLane:
    """One step is: run prompt chunks and decode tokens in one forward pass, then encode a batch of units.

    Where the device goes on by itself and streams are decoded here, the batch is encoded beside the following steps.
    """

    def __init__(
        self, stages: LanguageStages, hosted: frozenset[Stage], budget: Budget, port: Port, share: float = 1.0
    ) -> None:
        """Begin with a share of the budgets for heavy work beside streams."""
        model = stages.model
        self._model = model
        self._pool = model.kv.pool
        self._prompts: PromptTable = stages.prompts
        self._encode = stages.encode
        self._prefill = stages.prefill
        self._decode = stages.decode
        self._hosted = hosted
        self._policy = policy_for(hosted)
        self._budget = budget
        self._port = port
        self._rests = model.adapter.device.sharing.rests
        self._measured = Measured()
        self._streams = HeldStreams(budget, share)
        self._encoding: list[EncodeWork] = []  # the present batch of the encoder
        self._looks_between = False
        self._freed = FreedPages(port.outbox, keeps_visual=model.adapter.keeps_visual_rows)
        shared = self._measured, self._freed, port
        self._forward_step = ForwardStep(
            model, stages.prefill, stages.decode, stages.prompts, hosted, *shared, self._streams
        )
        stream = model.adapter.device.side_stream() if {Stage.ENCODE, Stage.DECODE} <= hosted else None
        self._encode_step = EncodeStep(stages.encode, stages.prompts, stages.visual, *shared, stream)
        if model.adapter.device.synchronous and goes_between(hosted, budget):
            model.adapter.between_layers = self._go_between

    def accept(self, message: Message) -> None:
        match message:
            case PrefillRequest():
                with self._guard([message.ticket.uid]):
                    self._accept_request(message)
            case Patches():
                self._encode.accept(message)
                self._wait(message.uid, Stage.ENCODE)
            case Embeddings():
                self._prefill.accept(message)
                self._wait(message.uid, Stage.PREFILL)
            case Generation():
                self._decode.accept(message)
            case Rehearse():
                self._port.outbox.to_engine(rehearse(self._model, self._budget, message))

    def step(self) -> float:
        if Stage.PREFILL in self._hosted:
            self._renew_prefixes()
        plan = self._policy(self._state(), self._held_budget())
        if encoding := bool(self._encode_step.uids):
            plan = plan._replace(encode=[])
        self._tell(plan, encoding=encoding)
        self._show_work(plan)
        if plan.preempt:
            self._preempt(plan.preempt)
        if plan.prefill or plan.decode or self._forward_step.under_way:
            uids = self._forward_step.uids | {chunk.uid for chunk in plan.prefill} | {uid for uid, _ in plan.decode}
            with self._guard(uids):
                self._forward_step.run(plan)
        self._report_caches()
        if encoding:
            self._streams.note_heavy()
            if self._encode_step.done or not (self._forward_step.under_way or plan.prefill):
                self._finish_encoding()
        elif plan.encode:
            self._begin_encoding(plan.encode)
        self._port.reporter.learned(self._measured.costs)
        self._tell_share()
        return AT_ONCE if plan.has_work or encoding or self._forward_step.under_way else plan.wait_until

    def drop(self, abort: Abort) -> None:
        if abort.index is not None or abort.stage is Stage.DECODE:
            self._drop_answers(abort.uid, abort.index)
        elif abort.stage in (Stage.ENCODE, Stage.PREFILL):
            self._drop_prompt(abort.uid)

    def counts(self) -> dict[Stage, tuple[int, int]]:
        states = [prompt.state for prompt in self._prompts]
        encoding = [state.reserved for state in states if not state.all_encoded]
        prefilling = [state.admitted for state in states]
        held = len(self._decode)
        running = {
            Stage.ENCODE: (sum(encoding), len(encoding)),
            Stage.PREFILL: (sum(prefilling), len(prefilling)),
            Stage.DECODE: (min(held, self._budget.max_running), held),
        }
        return {stage: (n, total - n) for stage, (n, total) in running.items() if stage in self._hosted}

    def close(self) -> None:
        """Do nothing: nothing runs beside the loop; pages are the engine's to reclaim."""

    def _begin_encoding(self, work: list[EncodeWork]) -> None:
        if not self._encode_step.beside:
            self._forward_step.settle()
        self._streams.note_heavy()
        self._port.reporter.flush(self.counts())  # tokens do not wait for the encoder
        with self._guard(uid for uid, _ in work):
            for uid in self._encode_step.recall(work):
                self._start_anew(uid)
            self._encoding = [each for each in work if each.uid in self._prompts]
            self._looks_between = True
            self._encode_step.begin(work)
        if not self._encode_step.beside:
            self._finish_encoding()
        self._report_caches()

    def _finish_encoding(self) -> None:
        with self._guard(self._encode_step.uids):
            self._encode_step.finish()
        self._report_caches()

    def _go_between(self) -> None:
        """Prefill short prompts between two layers of the encoder."""
        requests = self._port.outbox.take_requests()
        for request in requests:
            self.accept(request)
        if not (requests or self._looks_between):
            return
        uids = {uid for uid, _ in self._encoding}
        chunks = schedule_in_between(self._state(), self._budget, uids, self._measured.encoder_shares)
        self._looks_between = bool(chunks)
        if not chunks:
            return
        start, encoder = time.monotonic(), Plan(encode=self._encoding)
        plan = encoder._replace(prefill=chunks)
        self._tell(plan)
        self._show_work(plan)
        with self._guard(chunk.uid for chunk in chunks):
            self._forward_step.run(plan)
        self._report_caches()
        self._port.reporter.flush(self.counts())
        self._tell(encoder)
        self._measured.went_between(time.monotonic() - start)

    def _accept_request(self, request: PrefillRequest) -> None:
        uid = request.ticket.uid
        self._prompts.receive(request)
        if uid in self._prompts and self._prompts[uid].state.all_encoded:
            self._wait(uid, Stage.PREFILL)

    def _wait(self, uid: int, stage: Stage) -> None:
        if prompt := self._prompts.get(uid):
            prompt.wait(stage)

    def _renew_prefixes(self) -> None:
        """Renew what waiting requests may reuse: until they are let in, others may take it."""
        waiting = [p for p in self._prompts if p.request.reuse.prefix.numbers and not p.state.admitted]
        for prompt in waiting:
            if not self._prefill.renew(prompt):
                self._start_anew(prompt.uid)

    def _start_anew(self, uid: int) -> None:
        self._port.outbox.to_engine(Stale(uid))
        self._drop_prompt(uid)

    def _drop_prompt(self, uid: int) -> None:
        if uid in self._encode_step.uids:
            self._finish_encoding()
        self._prompts.drop(uid)
        self._freed.by_dropped_prompt()

    def _drop_answers(self, uid: int, index: int | None = None) -> None:
        if self._decode.drop_request(uid, index):
            self._freed.by_answers()

    def _held_budget(self) -> Budget:
        """Return the budget, less what streams would miss their target for."""
        if Stage.DECODE in self._hosted:
            return within_share(self._budget, self._streams.control.share)
        return self._budget if self._rests else heavy_within_share(self._budget, self._port.neighbours.share)

    def _tell_share(self) -> None:
        """Let heavy work of other workers know its share, which is all where no streams are left."""
        if Stage.DECODE in self._hosted:
            self._port.neighbours.tell_share(self._streams.control if len(self._decode) else TbtControl())

    def _state(self) -> State:
        neighbours, now = self._port.neighbours, time.monotonic()
        return State(
            prefills=self._prompts.in_turn(now),
            decodes=self._decode.states(),
            kv_free=self._pool.free_pages(),
            kv_total=self._pool.num_pages,
            visual_free=self._prompts.visual_free,
            now=now,
            pace=self._measured.pace._replace(
                others_work=self._rests and neighbours.work, waiting=neighbours.waiting, joining=neighbours.joining
            ),
            costs=self._measured.costs,
        )

    def _report_caches(self) -> None:
        """Report them with the tokens: a client's next request may need what this one left."""
        for stage in (self._encode, self._prefill, self._decode):
            self._port.reporter.cached(*stage.log.take())

    def _tell(self, plan: Plan, *, encoding: bool = False) -> None:
        """Let the other workers know what this one is about to do, so that they can pace themselves."""
        neighbours = self._port.neighbours
        if Stage.ENCODE in self._hosted:
            neighbours.tell_working(Stage.ENCODE, encoding or bool(plan.encode))
        if Stage.PREFILL in self._hosted:
            neighbours.tell_working(Stage.PREFILL, bool(plan.prefill))
            joining = joins_soon(plan, lambda uid: self._prompts[uid].state, self._budget)
            neighbours.tell_waiting(len(self._prompts), joining)

    def _show_work(self, plan: Plan) -> None:
        """Show which requests the worker computes for; a rest between two steps is part of them."""
        if plan.has_work or plan.wait_until == ON_MESSAGE:
            planned = {uid for uid, _ in plan.decode} | {chunk.uid for chunk in plan.prefill}
            under_way = self._forward_step.uids | self._encode_step.uids
            self._port.pulse.work_on(under_way | planned | {uid for uid, _ in plan.encode})

    def _preempt(self, keys: list[Key]) -> None:
        self._forward_step.settle()
        for key in keys:
            if self._decode.drop_request(*key):  # else its last token has just come
                self._port.outbox.to_engine(Preempted(*key))
        self._freed.by_answers()

    @contextmanager
    def _guard(self, uids: Iterable[int]) -> Iterator[None]:
        """Let a defect in a step end the requests in its batch, never the worker."""
        try:
            yield
        except Exception as error:
            _log.exception("a step failed")
            affected = sorted(set(uids))
            self._port.outbox.fail(affected, f"internal error: {error}", ErrorKind.INTERNAL)
            for uid in affected:
                self._drop_answers(uid)
                self._drop_prompt(uid)
