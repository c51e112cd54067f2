"""Run the language lane: encode, prefill and decode, mixed by one policy.

An instance that does not host a stage is never sent work for it, and plans none.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from unifiedserve.carriers.base import Carrier
from unifiedserve.device import SideQueue
from unifiedserve.errors import ErrorKind
from unifiedserve.messages.wire import (
    Abort,
    Answers,
    Embeddings,
    FilledPages,
    Generation,
    GrammarAhead,
    HandOver,
    Message,
    Patches,
    Preempted,
    PrefillRequest,
    Rehearse,
    Released,
    Stale,
)
from unifiedserve.placement import Stage
from unifiedserve.ranks.leader import OutOfStepError
from unifiedserve.scheduling import Budget, EncodeWork, Plan
from unifiedserve.scheduling.turn import Begin, Decoded, Encoded, Facts, Free, Handed, Left, Ready, Stopped, Turn
from unifiedserve.worker.broken_library import breaks_library
from unifiedserve.worker.lane import AT_ONCE, ON_MESSAGE
from unifiedserve.worker.language.encode_step import EncodeStep
from unifiedserve.worker.language.forward_step import ForwardStep
from unifiedserve.worker.language.freed_pages import FreedPages
from unifiedserve.worker.language.heirs import Heirs
from unifiedserve.worker.language.held import Held
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.receiver import Receiver
from unifiedserve.worker.language.rehearsal import rehearse
from unifiedserve.worker.language.sampler import Key
from unifiedserve.worker.language.sender import Sender
from unifiedserve.worker.language.sequence import Sequence
from unifiedserve.worker.language.staged_prompt import StagedPrompt
from unifiedserve.worker.language.stages import LanguageStages
from unifiedserve.worker.port import Port

_log = logging.getLogger(__name__)


class LanguageLane:
    """Take steps: run prompt chunks and decode tokens in one forward pass, then encode a batch of units.

    With a `side` queue the batch is encoded beside this and the following steps.
    """

    def __init__(
        self,
        stages: LanguageStages,
        hosted: frozenset[Stage],
        budget: Budget,
        port: Port,
        turn: Turn,
        side: SideQueue | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        """Do what a `turn` of these stages decides; that, the `side` queue and the `carrier` are the lane's."""
        model = stages.model
        self._model = model
        self._pool = model.kv.pool
        self._visual = stages.visual.pool
        self._prompts: PromptTable = stages.prompts
        self._encode = stages.encode
        self._prefill = stages.prefill
        self._decode = stages.decode
        self._sampler = stages.sampler
        self._hosted = hosted
        self._budget = budget
        self._port = port
        self._turn = turn
        self._looks_between = False
        if carrier:
            port.reporter.reads_at(carrier.address)
        self._freed = FreedPages(
            port.outbox, port.memory, keeps_visual=model.adapter.keeps_visual_rows, travels=bool(port.elsewhere)
        )
        self._sender = Sender(
            port.instance, model.kv, stages.visual, port.outbox, port.elsewhere, carrier.address if carrier else ""
        )
        self._heirs: Heirs | None = None  # of this instance, once it is to decode no more
        self._receiver = Receiver(
            stages, port, carrier, turn.note, self._accept_embeddings, self._accept_generation, self._start_anew
        )
        shared = self._turn.note, self._freed, port, self._sender
        self._forward_step = ForwardStep(model, stages.prefill, stages.decode, stages.prompts, hosted, *shared)
        self._encode_step = EncodeStep(stages.encode, stages.prompts, *shared, side)
        self._goes_between = model.adapter.device.synchronous and self._turn.goes_between and not side

    def accept(self, message: Message) -> None:
        match message:
            case PrefillRequest():
                with self._guard([message.ticket.uid]):
                    self._accept_request(message)
            case Patches():
                self._accept_patches(message)
            case Embeddings():
                self._accept_embeddings(message)
            case Generation():
                self._accept_generation(message)
            case Answers():
                self._receiver.offer_answers(message)
            case HandOver():
                self._hand_over(message)
            case FilledPages():
                self._receiver.offer_full_pages(message)
            case Released():
                self._sender.release(message)
                self._freed.by_sender()
            case GrammarAhead():
                if self._hosted & {Stage.PREFILL, Stage.DECODE}:
                    self._sampler.expect_grammar()
            case Rehearse():
                self._port.outbox.to_engine(rehearse(self._model, self._hosted, self._budget, message))

    def step(self) -> float:
        self._receiver.take_ended()
        if Stage.PREFILL in self._hosted:
            self._renew_prefixes()
        plan, tells, leaves_cores = self._turn.take(self._facts())
        self._port.tell(tells)
        self._show_work(plan)
        if plan.preempt:
            self._preempt(plan.preempt)
        self._receiver.forgo(plan.forgo)
        self._receiver.pull(plan.pull)
        if plan.encode and self._encode_step.tells:  # at once, so that it goes on beside this very pass
            self._begin_encoding(plan.encode)
        under_way = self._forward_step.under_way
        if plan.prefill or plan.decode or under_way:
            uids = self._forward_step.uids | {chunk.uid for chunk in plan.prefill} | {uid for uid, _ in plan.decode}
            with self._guard(uids):
                self._forward_step.run(plan, leaves_cores=leaves_cores)
        self._report_caches()
        encoding = self._go_on_encoding(plan)
        self._port.reporter.learned(self._turn.costs)
        return AT_ONCE if plan.has_work or encoding or under_way else plan.wait_until

    def drop(self, abort: Abort) -> None:
        if abort.index is not None or abort.stage is Stage.DECODE:
            self._drop_answers(abort.uid, abort.index)
        elif abort.stage in (Stage.ENCODE, Stage.PREFILL):
            self._drop_prompt(abort.uid)
            self._sender.drop(abort.uid)  # behind the batch that may have ended just now: its units were lent, too

    def held(self, stage: Stage) -> dict[str, list[int]]:
        """Return what prefill or decode holds; encode's pages are not known to anybody before they are sent."""
        holders: dict[Stage, list[Held]] = {
            Stage.PREFILL: [*self._prompts.held(), *self._sender.held()],
            Stage.DECODE: self._decode.held(),
        }
        own = holders.get(stage, [])
        return {
            "kv": [page for held in own for page in held.kv],
            "visual": [page for held in own for page in held.visual],
        }

    def counts(self) -> dict[Stage, tuple[int, int]]:
        return self._turn.counts()

    def close(self) -> None:
        """End what encodes beside the loop; pages are the engine's to reclaim."""
        self._receiver.shut()
        self._encode_step.close()

    def _go_on_encoding(self, plan: Plan) -> bool:
        """Finish the batch that is done, or begin the planned one; return whether the next turn comes at once."""
        step = self._encode_step
        if not step.uids:
            if plan.encode and not step.tells:
                self._begin_encoding(plan.encode)
            return False
        if step.done or not (step.tells or self._forward_step.under_way or plan.prefill):
            self._finish_encoding()
            return True
        return not step.tells

    def _begin_encoding(self, work: list[EncodeWork]) -> None:
        if not self._encode_step.beside:
            self._forward_step.settle()
        self._port.reporter.flush(self.counts())  # tokens do not wait for the encoder
        with self._guard(uid for uid, _ in work):
            self._looks_between = True
            for _ in self._encode_step.begin(work):
                if self._goes_between:
                    self._go_between()
        if not (self._encode_step.beside and self._encode_step.uids):
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
        plan, tells, _ = self._turn.between(self._facts())
        self._port.tell(tells)
        self._looks_between = bool(plan.prefill)
        if not plan.prefill:
            return
        self._show_work(plan)
        with self._guard(chunk.uid for chunk in plan.prefill):
            self._forward_step.run(plan)
        self._report_caches()
        self._port.reporter.flush(self.counts())

    def _accept_request(self, request: PrefillRequest) -> None:
        prompt = self._prompts.receive(request)
        self._turn.note(Begin(request.ticket, prompt.shape))
        if prompt.shape.prefills_here and request.reuse.offers:
            for unit, offer in request.reuse.offers.items():
                self._receiver.offer_unit(Embeddings(uid=prompt.uid, unit=unit, pages=[], offer=offer), offer)
        elif prompt.shape.prefills_here and prompt.all_cached:
            self._recall(prompt)
        if prompt.all_encoded:
            self._wait(prompt.uid, Stage.PREFILL)

    def _recall(self, prompt: StagedPrompt) -> None:
        """Take what the cache has of a prompt of which vision has nothing to decode."""
        units = self._prefill.recall(prompt)
        if units is None:
            self._start_anew(prompt.uid)
            return
        for unit in units:
            self._turn.note(Encoded(prompt.uid, unit))

    def _accept_patches(self, message: Patches) -> None:
        self._encode.accept(message)
        if message.uid not in self._prompts:
            return
        for unit in message.units:
            self._turn.note(Ready(message.uid, unit))
        self._wait(message.uid, Stage.ENCODE)
        if message.last:
            self._turn.note(Decoded(message.uid))
            self._prompts.drop_if_done(message.uid)

    def _accept_embeddings(self, message: Embeddings) -> None:
        if message.offer:
            if message.uid in self._prompts:
                self._receiver.offer_unit(message, message.offer)
                self._wait(message.uid, Stage.PREFILL)
            return
        self._prefill.accept(message)
        if message.uid in self._prompts:
            self._turn.note(Encoded(message.uid, message.unit))
            self._wait(message.uid, Stage.PREFILL)

    def _accept_generation(self, message: Generation) -> None:
        sequence = Sequence.of(message)
        if self._heirs:
            self._heirs.take(sequence)
            return
        self._decode.accept(sequence)
        self._turn.note(Handed(self._decode.state(sequence)))

    def _hand_over(self, message: HandOver) -> None:
        """Have others decode in place of an instance; if it is this one, they go on with what it decodes, too."""
        heirs = Heirs(message, self._sender, self._port.outbox)
        for prompt in self._prompts:
            heirs.reroute(prompt)
        if message.instance != self._port.instance:
            return
        self._heirs = heirs
        with self._guard(self._forward_step.uids):
            self._forward_step.settle()
        for sequence in self._decode.give_up():
            self._turn.note(Stopped(*sequence.key))
            heirs.take(sequence)

    def _wait(self, uid: int, stage: Stage) -> None:
        if prompt := self._prompts.get(uid):
            prompt.wait(stage)

    def _renew_prefixes(self) -> None:
        """Renew what waiting requests may reuse: until they are let in, others may take it."""
        waiting = [prompt for prompt in self._prompts if prompt.request.reuse.prefix.numbers and not prompt.kv]
        for prompt in waiting:
            if renewed := self._prefill.renew(prompt):
                self._turn.note(renewed)
            else:
                self._start_anew(prompt.uid)

    def _start_anew(self, uid: int, reason: str = "") -> None:
        self._port.outbox.to_engine(Stale(uid, reason))
        self._drop_prompt(uid)

    def _drop_prompt(self, uid: int) -> None:
        if uid in self._encode_step.uids:
            self._finish_encoding()
        self._receiver.drop_prompt(uid)
        self._prompts.drop(uid)
        self._turn.note(Left(uid))
        self._freed.by_dropped_prompt()

    def _drop_answers(self, uid: int, index: int | None = None) -> None:
        none_left = self._receiver.drop_answers(uid, index)
        self._turn.note(Stopped(uid, None if none_left else index))
        if self._decode.drop_request(uid, index) or none_left:
            self._freed.by_answers()

    def _facts(self) -> Facts:
        visual = self._visual.free_pages() if self._port.elsewhere else 0
        free = Free(self._pool.free_pages(), self._pool.num_pages, visual)
        return Facts(time.monotonic(), free, self._port.neighbours.around())

    def _report_caches(self) -> None:
        """Report them with the tokens: a client's next request may need what this one left."""
        for log in (self._encode.log, self._prefill.visual_log, self._prefill.log, self._decode.log):
            self._port.reporter.cached(*log.take())

    def _show_work(self, plan: Plan) -> None:
        """Show which requests the worker computes for; a rest between two steps is part of them."""
        if plan.has_work or plan.wait_until == ON_MESSAGE:
            planned = {uid for uid, _ in plan.decode} | {chunk.uid for chunk in plan.prefill}
            under_way = self._forward_step.uids | self._encode_step.uids
            self._port.pulse.work_on(under_way | planned | {uid for uid, _ in plan.encode})

    def _preempt(self, keys: list[Key]) -> None:
        self._forward_step.settle()
        for key in keys:
            self._turn.note(Stopped(*key))
            if self._decode.drop_request(*key):  # else its last token has just come
                self._port.outbox.to_engine(Preempted(*key))
        self._freed.by_answers()

    @contextmanager
    def _guard(self, uids: Iterable[int]) -> Iterator[None]:
        """Let a defect in a step end its batch's requests, never the worker.

        Ranks out of step and a broken library end the worker: it is replaced, and its requests go on.
        """
        try:
            yield
        except OutOfStepError:
            raise
        except Exception as error:
            if breaks_library(error):
                raise
            _log.exception("a step failed")
            affected = sorted(set(uids))
            self._port.outbox.fail(affected, f"internal error: {error}", ErrorKind.INTERNAL)
            for uid in affected:
                self._drop_answers(uid)
                self._drop_prompt(uid)
