"""Prefill: prompt chunks through the language model, up to the first token of every answer."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.memory.content_index import Pages
from unifiedserve.memory.content_keys import ROOT_KEY
from unifiedserve.memory.row_buffer import PageSlice, RowBuffer
from unifiedserve.messages import Embeddings, Request, Sequence, Token
from unifiedserve.models.scopes import Scope, cross_spans, rows_from
from unifiedserve.scheduling import Chunk
from unifiedserve.stages.cache_log import CacheLog
from unifiedserve.stages.language import LanguageModel, Rows
from unifiedserve.stages.prompt import Prompt
from unifiedserve.stages.sampler import Sampler
from unifiedserve.stages.sequence import release_pages
from unifiedserve.stages.visual_pages import VisualPages


@dataclass(slots=True)
class _Progress:
    """What prefill knows of a prompt beyond its state."""

    positions: Tensor  # int64 [P, n]
    position_offset: int
    is_visual: Tensor  # bool [n]
    rows_before: Tensor  # int64 [n + 1]: visual rows before each token
    scopes: list[Scope]  # of visual rows that are kept
    needed: int  # KV pages, those that are reused included
    prefix: Pages  # of the KV cache, to be reused
    visual: VisualPages
    kept: int = 0  # leading pages that are remembered
    pages: list[int] = field(default_factory=list)  # of the KV cache


class Finished(NamedTuple):
    """What a step of prefill gave: first tokens, sequences for decode, and prompts that are through.

    `without_tokens` are those of them that want none.
    """

    tokens: list[Token]
    sequences: list[Sequence]
    complete: list[int]
    without_tokens: list[int]


class PrefillStage:
    """Owns the visual pages that arrive until no token needs them, and the KV pages, both until handoff."""

    def __init__(self, model: LanguageModel, visual: RowBuffer, instance: int, sampler: Sampler) -> None:
        self._model = model
        self._visual = visual
        self._kv = model.kv
        self._instance = instance
        self._sampler = sampler
        self._progress: dict[int, _Progress] = {}
        self.log = CacheLog("kv", self._kv.pool)

    def start(self, prompt: Prompt) -> None:
        """A request arrived."""
        request = prompt.request
        adapter = self._model.adapter
        token_ids = torch.tensor(request.token_ids)
        positions, offset = self._positions(request)
        is_visual = torch.isin(token_ids, torch.tensor(sorted(adapter.visual_ids)))
        is_visual[request.num_prompt :] = False  # a placeholder that was generated is a token like any other
        rows_before = torch.cat([torch.zeros(1, dtype=torch.int64), is_visual.cumsum(0)])
        self._progress[request.uid] = _Progress(
            positions,
            offset,
            is_visual,
            rows_before,
            adapter.scopes(request.token_ids[: request.num_prompt], request.media),
            prompt.state.kv_pages,
            request.reuse.prefix,
            VisualPages(self._visual),
        )

    def renew(self, prompt: Prompt) -> bool:
        """See what is left of the prefix that a waiting request may reuse; whether that is enough to go on without
        the media that were not decoded. The request then needs new pages for the rest only.
        """
        progress = self._progress[prompt.state.uid]
        left, in_use = self._kv.pool.renew(*progress.prefix)
        progress.prefix = progress.prefix.first(left)
        prompt.state.prefilled = left * self._kv.page_size
        prompt.state.kv_pages = progress.needed - in_use
        return prompt.state.prefilled >= prompt.covered

    def accept(self, message: Embeddings, prompt: Prompt | None) -> None:
        """A unit was encoded; that of a request that is gone is released."""
        if prompt is None:
            self._visual.pool.release(message.pages)
            return
        prompt.state.units[message.unit].encoded = True
        rows = range(prompt.rows[message.unit], prompt.rows[message.unit + 1])
        self._progress[message.uid].visual.add(message.pages, rows)

    def rows(self, chunks: list[Chunk], prompts: dict[int, Prompt]) -> list[tuple[Chunk, Rows]]:
        """The chunks as model input, less those whose KV pages another process took meanwhile."""
        batch = []
        for chunk in chunks:
            if chunk.uid not in prompts:
                continue  # it left after this step was planned
            prompt, progress = prompts[chunk.uid], self._progress[chunk.uid]
            if prompt.state.admitted or self._admit(prompt, progress):
                batch.append((chunk, self._chunk_rows(chunk, prompt, progress)))
        return batch

    def finish(self, chunks: list[Chunk], logits: Tensor, prompts: dict[int, Prompt]) -> Finished:
        """Advance the prompts; those that are through give the first token of each answer.

        `logits` [k, vocab] are those of the k prompts that are through and want tokens, in order.
        """
        finished = Finished([], [], [], [])
        rows = iter(logits)
        for chunk in chunks:
            prompt = prompts[chunk.uid]
            prompt.state.prefilled = chunk.stop
            self._keep_full_pages(prompt)
            self._release_visual(chunk.uid, chunk.stop)
            if chunk.stop < prompt.state.num_tokens:
                continue
            finished.complete.append(chunk.uid)
            if prompt.request.sampling.max_tokens == 0:
                finished.without_tokens.append(chunk.uid)
                self.drop(chunk.uid)
            else:
                for sequence, token in self._first_tokens(prompt, next(rows)):
                    finished.tokens.append(token)
                    if token.finish:
                        release_pages(sequence, self._kv, self._visual)
                    else:
                        finished.sequences.append(sequence)
        return finished

    def drop(self, uid: int) -> None:
        """Forget a request and release all that it holds."""
        progress = self._progress.pop(uid, None)
        if progress is None:
            return
        self._kv.pool.release(progress.pages)
        progress.visual.release()

    def _positions(self, request: Request) -> tuple[Tensor, int]:
        """Positions of the tokens so far (the generated ones go on from the prompt's), and what decode adds."""
        adapter = self._model.adapter
        prompt = adapter.positions(request.token_ids[: request.num_prompt], request.media)
        offset = adapter.next_position(prompt)
        generated = torch.arange(request.num_prompt, len(request.token_ids)) + offset
        return torch.cat([prompt, generated.expand(len(prompt), -1)], dim=1), offset

    def _admit(self, prompt: Prompt, progress: _Progress) -> bool:
        uid, pool, reused = prompt.state.uid, self._kv.pool, progress.prefix.numbers
        recalled = pool.recall(*progress.prefix, uid, self._instance)
        whole = recalled == len(reused)
        pages = pool.allocate(progress.needed - len(reused), uid, self._instance) if whole else None
        if pages is None:
            pool.release(reused[:recalled])
            return False
        progress.pages = [*reused, *pages.tolist()]
        progress.kept = len(reused)
        prompt.state.admitted = True
        if prompt.request.page_keys is not None:
            self.log.looked_up(prompt.state.uid, prompt.state.num_tokens, len(reused) * self._kv.page_size)
        return True

    def _keep_full_pages(self, prompt: Prompt) -> None:
        """Requests that begin alike can use them, also when this one is gone."""
        progress, keys = self._progress[prompt.state.uid], prompt.request.page_keys or []
        while progress.kept < min(len(keys), prompt.state.prefilled // self._kv.page_size):
            self.log.keep(keys[progress.kept], [progress.pages[progress.kept]])
            progress.kept += 1

    def _chunk_rows(self, chunk: Chunk, prompt: Prompt, progress: _Progress) -> Rows:
        span = slice(chunk.start, chunk.stop)
        next_token = chunk.stop == prompt.state.num_tokens and prompt.request.sampling.max_tokens != 0
        first, last = int(progress.rows_before[chunk.start]), int(progress.rows_before[chunk.stop])
        return Rows(
            token_ids=prompt.request.token_ids[span],
            positions=progress.positions[:, span],
            start=chunk.start,
            pages=progress.pages,
            visual=progress.visual.read(range(first, last)) if last > first else None,
            is_visual=progress.is_visual[span],
            wanted=None if prompt.request.reads_prompt else int(next_token),
            next_token=next_token,
            cross=cross_spans(progress.scopes, chunk.start, chunk.stop, progress.visual.find),
        )

    def _release_visual(self, uid: int, stop: int) -> None:
        """Release the pages that no token from position `stop` on needs."""
        progress = self._progress[uid]
        later = range(int(progress.rows_before[stop]), int(progress.rows_before[-1]))
        progress.visual.release(rows_from(progress.scopes, stop) or [later])

    def _first_tokens(self, prompt: Prompt, logits: Tensor) -> list[tuple[Sequence, Token]]:
        request, progress = prompt.request, self._progress.pop(prompt.state.uid)
        last_key = b"" if request.page_keys is None else [ROOT_KEY, *request.page_keys][-1]
        visual = self._shared_visual(progress, len(request.indices))
        sequences = [
            Sequence(
                uid=request.uid,
                index=index,
                arrival=request.arrival,
                priority=request.priority,
                token_ids=list(request.token_ids),
                num_prompt=request.num_prompt,
                pages=pages,
                visual=visual,
                position_offset=progress.position_offset,
                sampling=request.sampling.for_choice(index),
                keyed=progress.kept,
                last_key=last_key,
                tail_media=request.tail_media,
            )
            for index, pages in zip(request.indices, self._fork(request.indices, progress.pages, prompt), strict=True)
        ]
        tokens = self._sampler.next_tokens(sequences, logits.expand(len(sequences), -1))
        return list(zip(sequences, tokens, strict=True))

    def _shared_visual(self, progress: _Progress, answers: int) -> list[PageSlice]:
        """What is left for the answers to attend to: all of them hold its pages."""
        visual = progress.visual.slices(rows_from(progress.scopes, len(progress.is_visual)))
        for _ in range(answers - 1):
            self._visual.pool.retain([part.page for part in visual])
        return visual

    def _fork(self, indices: list[int], pages: list[int], prompt: Prompt) -> list[list[int]]:
        """Page tables of the answers: full pages are shared, the others, which still change, are copied for each."""
        tokens, kv = prompt.state.num_tokens, self._kv
        needed, full = kv.pages_for(tokens), kv.state_pages + tokens // kv.page_size
        changing = [*pages[: kv.state_pages], *pages[full:needed]]
        tables = [pages[:needed]]
        for first in range(needed, len(pages), max(1, len(changing))):
            own = pages[first : first + len(changing)]
            kv.copy_pages(changing, own)
            tables.append([*own[: kv.state_pages], *pages[kv.state_pages : full], *own[kv.state_pages :]])
        tables += [list(tables[0]) for _ in range(len(indices) - len(tables))]  # nothing of it still changes
        for table in tables[1:]:
            kv.pool.retain(table[kv.state_pages : full])
        return tables
