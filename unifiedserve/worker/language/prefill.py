"""Prefill: prompt chunks through the language model, up to the first token of every answer."""

from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.wire import Embeddings, Room, Token
from unifiedserve.models.scopes import cross_spans
from unifiedserve.scheduling import Chunk
from unifiedserve.scheduling.turn import Renewed
from unifiedserve.worker.cache_log import CacheLog
from unifiedserve.worker.language.handoff import hand_over
from unifiedserve.worker.language.model import LanguageModel, Rows
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.sampler import Sampler
from unifiedserve.worker.language.sequence import Sequence
from unifiedserve.worker.language.staged_prompt import StagedPrompt


class Finished(NamedTuple):
    """Report a step of prefill: first tokens, answers for decode, and prompts without any that are through.

    Pages of windows go back to their givers, for further units: by the name of the host.
    """

    tokens: list[Token]
    sequences: list[Sequence]
    without_tokens: list[int]
    room: list[tuple[str, Room]]


class PrefillStage:
    """Take the table's prompts through the language model."""

    def __init__(
        self, model: LanguageModel, visual: RowBuffer, instance: int, sampler: Sampler, prompts: PromptTable
    ) -> None:
        self._model = model
        self._visual = visual
        self._kv = model.kv
        self._instance = instance
        self._sampler = sampler
        self._prompts = prompts
        self.log = CacheLog("kv", self._kv.pool)
        self.visual_log = CacheLog("visual", visual.pool)

    def accept(self, message: Embeddings) -> None:
        """Take an encoded unit in; that of a request that is gone is released."""
        if prompt := self._prompts.get(message.uid):
            if prompt.request.window:
                prompt.lent[message.unit] = message.cached
            self._take_visual(prompt, message.unit, message.pages)
        else:
            self._visual.release(message.pages)

    def recall(self, prompt: StagedPrompt) -> list[int] | None:
        """Take a prompt's visual tokens from the cache, which has all its media. Returns the units that came so.

        None: some are gone; the prompt has to leave.
        """
        for unit, pages in prompt.request.reuse.units.items():
            if not self._visual.recall(pages, prompt.uid, self._instance):
                return None
            self._take_visual(prompt, unit, list(pages.numbers))
        return list(prompt.request.reuse.units)

    def renew(self, prompt: StagedPrompt) -> Renewed | None:
        """See what is left of the prefix that a waiting request may reuse.

        None if that is not enough to go on without the media that were not decoded.
        """
        left, in_use = self._kv.pool.renew(*prompt.prefix)
        prompt.prefix, prompt.prefilled = prompt.prefix.first(left), left * self._kv.page_size
        if prompt.prefilled < prompt.covered:
            return None
        return Renewed(prompt.uid, prompt.prefilled, prompt.shape.kv_pages - in_use)

    def rows(self, chunks: list[Chunk]) -> list[tuple[Chunk, Rows]]:
        """Return the chunks as model input, less those whose KV pages another process took meanwhile."""
        batch = []
        for chunk in chunks:
            prompt = self._prompts.get(chunk.uid)
            if prompt is None:
                continue  # it left after this step was planned
            if prompt.kv or self._admit(prompt):
                batch.append((chunk, self._chunk_rows(chunk, prompt)))
        return batch

    def finish(self, chunks: list[Chunk], logits: Tensor) -> Finished:
        """Advance the prompts; those that are through leave, with the first token of each answer.

        `logits` [k, vocab] are those of the k prompts that are through and want tokens, in order.
        """
        finished = Finished([], [], [], [])
        answers: list[list[Sequence]] = []  # of each of the k
        for chunk in chunks:
            prompt = self._prompts[chunk.uid]
            prompt.prefilled = chunk.stop
            self._keep_full_pages(prompt)
            if prompt.request.window:
                if back := self._give_back(prompt):
                    finished.room.append((prompt.ticket.route.vision, Room(uid=chunk.uid, visual=back)))
            else:
                prompt.visual.release(prompt.inputs.rows_needed(chunk.stop))
            if prompt.complete and prompt.wants_tokens:
                answers.append(hand_over(prompt, self._kv))
            elif prompt.complete:
                finished.without_tokens.append(chunk.uid)
            self._prompts.drop_if_done(chunk.uid)
        if answers:
            self._begin(answers, logits, finished)
        return finished

    def _take_visual(self, prompt: StagedPrompt, unit: int, pages: list[int]) -> None:
        gone = not prompt.lent.get(unit, True)  # from the cache, when its turn came
        if prompt.request.reuse.has(unit) and not gone:
            tokens = prompt.shape.units[unit].tokens
            self.visual_log.looked_up(prompt.uid, tokens, tokens)
        prompt.take_visual(unit, pages)

    def _give_back(self, prompt: StagedPrompt) -> list[int]:
        """Return pages for further units of a prompt's window, as many as have been read.

        If others are free, these are remembered: the cache holds as much of a medium as it has room for.
        """
        back: list[int] = []
        for unit, pages in prompt.take_read():
            keys = prompt.request.unit_keys
            if prompt.lent.pop(unit):
                self._visual.release(pages)
            elif keys and (fresh := self._visual.pool.allocate(len(pages), prompt.uid, self._instance)) is not None:
                self.visual_log.keep(keys[unit], pages)
                self._visual.release(pages)
                back += fresh.tolist()
            else:
                back += pages
        return back

    def _admit(self, prompt: StagedPrompt) -> bool:
        pool, reused = self._kv.pool, prompt.prefix.numbers
        if not self._kv.recall(prompt.prefix, prompt.uid, self._instance):
            return False
        pages = pool.allocate(prompt.shape.kv_pages - len(reused), prompt.uid, self._instance)
        if pages is None:
            self._kv.release(reused)
            return False
        prompt.admit([*reused, *pages.tolist()])
        if prompt.request.page_keys is not None:
            self.log.looked_up(prompt.uid, prompt.shape.tokens, len(reused) * self._kv.page_size)
        return True

    def _keep_full_pages(self, prompt: StagedPrompt) -> None:
        """Remember them: requests that begin alike can use them, also when this one is gone."""
        keys = prompt.request.page_keys or []
        while prompt.kept < min(len(keys), prompt.prefilled // self._kv.page_size):
            self.log.keep(keys[prompt.kept], [prompt.kv[prompt.kept]])
            prompt.kept += 1

    @staticmethod
    def _chunk_rows(chunk: Chunk, prompt: StagedPrompt) -> Rows:
        span, inputs = slice(chunk.start, chunk.stop), prompt.inputs
        logits = int(chunk.stop == prompt.shape.tokens and prompt.wants_tokens)
        visual = inputs.visual_rows(chunk.start, chunk.stop)
        return Rows(
            token_ids=prompt.request.token_ids[span],
            positions=inputs.positions[:, span],
            start=chunk.start,
            pages=prompt.kv,
            visual=prompt.visual.read(visual) if visual else None,
            is_visual=inputs.is_visual[span],
            wanted=None if prompt.request.reads_prompt else logits,
            logits=logits,
            cross=cross_spans(inputs.scopes, chunk.start, chunk.stop, prompt.visual.find),
        )

    def _begin(self, answers: list[list[Sequence]], logits: Tensor, finished: Finished) -> None:
        """Begin the answers of each prompt; those that end with their first token release their pages."""
        sequences = [sequence for own in answers for sequence in own]
        if len(sequences) > len(logits):
            logits = torch.cat([row.expand(len(own), -1) for row, own in zip(logits, answers, strict=True)])
        tokens = self._sampler.next_tokens(sequences, logits)
        finished.tokens.extend(tokens)
        for sequence, token in zip(sequences, tokens, strict=True):
            self._sampler.forget(sequence.key)  # it goes on in decode, mostly in another worker
            if token.finish:
                sequence.release(self._kv, self._visual)
            else:
                finished.sequences.append(sequence)
