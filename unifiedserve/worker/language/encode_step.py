"""The part of a step that encodes: what the cache has, and the rest."""

import time

from unifiedserve.config import Stage
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.scheduling import EncodeWork
from unifiedserve.worker.language.encode import EncodeStage
from unifiedserve.worker.language.freed_pages import FreedPages
from unifiedserve.worker.language.measured import Measured
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.port import Port


class EncodeStep:
    """Runs the units of a plan and sends their visual tokens on to prefill."""

    def __init__(
        self,
        stage: EncodeStage,
        prompts: PromptTable,
        visual: RowBuffer,
        measured: Measured,
        freed: FreedPages,
        port: Port,
    ) -> None:
        self._stage = stage
        self._prompts = prompts
        self._visual = visual
        self._measured = measured
        self._freed = freed
        self._port = port

    def recall(self, work: list[EncodeWork]) -> list[int]:
        """Send units on whose visual tokens are there as if they had just been encoded; return stale requests."""
        embeddings, stale = self._stage.recall(work)
        for message in embeddings:
            self._port.outbox.send(Stage.PREFILL, message)
        return stale

    def run(self, scheduled: list[EncodeWork]) -> None:
        """Encode what the cache did not have."""
        if work := self._missing(scheduled):
            self._encode(work)
        for uid, _ in scheduled:
            if uid in self._prompts:
                self._prompts.drop_if_done(uid)

    def _missing(self, scheduled: list[EncodeWork]) -> list[EncodeWork]:
        return [
            EncodeWork(uid, units)
            for uid, all_units in scheduled
            if (prompt := self._prompts.get(uid))
            and (units := [unit for unit in all_units if unit not in prompt.request.reuse.units])
        ]

    def _encode(self, work: list[EncodeWork]) -> None:
        start = time.monotonic()
        self._measured.begin_encoding()
        for uid, _ in work:
            self._port.reporter.waited(Stage.ENCODE, uid, self._prompts[uid].end_wait(Stage.ENCODE))
        for message in self._stage.step(work):
            self._port.outbox.send(Stage.PREFILL, message)
        tokens = sum(self._prompts[uid].state.units[unit].tokens for uid, units in work for unit in units)
        self._measured.encoded(tokens)
        self._port.neighbours.tell_used(Stage.ENCODE, self._visual.pool.used_pages())
        self._freed.by_encode()
        self._port.reporter.span(Stage.ENCODE, "encode", start, [uid for uid, _ in work], tokens)
