"""Split a prompt's pages among its answers: what they share, and what each gets of its own."""

from unifiedserve.memory.content_keys import ROOT_KEY
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.messages.pages import PageSlice
from unifiedserve.worker.language.sequence import Sequence
from unifiedserve.worker.language.staged_prompt import StagedPrompt


def hand_over(prompt: StagedPrompt, kv: KVCache) -> list[Sequence]:
    """Return the answers of a prompt that is complete, before their first tokens; they hold all that it held."""
    request = prompt.request
    last_key = b"" if request.page_keys is None else [ROOT_KEY, *request.page_keys][-1]
    visual = _share_visual(prompt)
    return [
        Sequence(
            ticket=request.ticket,
            index=index,
            token_ids=list(request.token_ids),
            num_prompt=request.num_prompt,
            pages=pages,
            visual=visual,
            position_offset=prompt.inputs.position_offset,
            sampling=request.sampling.for_choice(index),
            keyed=prompt.kept,
            last_key=last_key,
            tail_media=request.tail_media,
        )
        for index, pages in zip(request.indices, _fork(prompt, kv), strict=True)
    ]


def _share_visual(prompt: StagedPrompt) -> list[PageSlice]:
    """Return what is left for the answers to attend to: all of them hold its pages."""
    return prompt.visual.hand_over(prompt.inputs.rows_needed(prompt.shape.tokens), len(prompt.request.indices))


def _fork(prompt: StagedPrompt, kv: KVCache) -> list[list[int]]:
    """Return the answers' page tables: full pages are shared, the others, which still change, are copied for each."""
    answers, tokens, pages = len(prompt.request.indices), prompt.shape.tokens, prompt.hand_over_kv()
    needed, full = kv.pages_for(tokens), kv.state_pages + tokens // kv.page_size
    changing = [*pages[: kv.state_pages], *pages[full:needed]]
    tables = [pages[:needed]]
    for first in range(needed, len(pages), max(1, len(changing))):
        own = pages[first : first + len(changing)]
        kv.copy_pages(changing, own)
        tables.append([*own[: kv.state_pages], *pages[kv.state_pages : full], *own[kv.state_pages :]])
    tables += [list(tables[0]) for _ in range(answers - len(tables))]  # nothing of it still changes
    for table in tables[1:]:
        kv.pool.retain(table[kv.state_pages : full])
    return tables
