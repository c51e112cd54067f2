"""Remember what need not be computed again: KV pages of prompts, visual tokens of media.

The prompts began alike; the media were seen before. The pages are where they were computed, and free: workers take them
again when they need them, the least recently used first. Only where to look is kept here, in the engine, which sees
every request before it is anywhere else.
"""

import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import msgspec

from ipc_buffers import PagePool
from unifiedserve.config import EngineConfig
from unifiedserve.memory.content_index import ContentIndex
from unifiedserve.memory.content_keys import MediaTokens, medium_key, page_keys, unit_key
from unifiedserve.memory.shared import PoolKey
from unifiedserve.messages.media import ExpandedPrompt
from unifiedserve.messages.pages import PageOffer, Pages
from unifiedserve.messages.wire import Kept, Reuse
from unifiedserve.models.processor import Processor
from unifiedserve.placement import ENGINE, Placement

_TO_BE_ENCODED = PageOffer(ENGINE, "")  # by another node, once there is room for it here


@dataclass(frozen=True, slots=True)
class PromptContents:
    """Describe a prompt's contents, as the caches know them."""

    page_tokens: int
    media: MediaTokens
    page_keys: list[bytes]  # of the full KV pages
    digests: list[bytes]  # of the media's bytes
    unit_keys: list[bytes]
    unit_ends: list[int]  # a prefix of so many tokens makes each unit superfluous, ascending


class Known(NamedTuple):
    """Tell what the caches know of a prompt: keys, and what need not be computed.

    The keys are those of its full KV pages (None: they are not to be remembered), of the media with tokens behind
    these, and of its encode units (none if they are not).
    """

    page_keys: list[bytes] | None = None
    tail_media: list[bytes] = []  # noqa: RUF012
    unit_keys: list[bytes] = []  # noqa: RUF012
    reuse: Reuse = Reuse()


def contents_of(
    prompt: ExpandedPrompt,
    visual_ids: Collection[int],
    digests: Sequence[bytes],
    page_tokens: int,
    attended: bool = False,
) -> PromptContents:
    """Return the contents of a prompt; `digests` are those of the media's bytes, in the order of the prompt.

    Takes milliseconds for a long prompt. Media that are `attended` to from anywhere count from the first token on, and
    no prefix makes them superfluous.
    """
    plans = prompt.media
    keys = [medium_key(digest, msgspec.msgpack.encode(plan)) for digest, plan in zip(digests, plans, strict=True)]
    unit_keys = [unit_key(key, unit) for key, plan in zip(keys, plans, strict=True) for unit in range(plan.units)]
    if attended:
        media = MediaTokens([0] * len(keys), [(key, 1) for key in keys])
        unit_ends = [sys.maxsize] * len(unit_keys)
    else:
        positions = [i for i, token in enumerate(prompt.token_ids) if token in visual_ids] if plans else []
        media = MediaTokens(positions, [(key, plan.tokens) for key, plan in zip(keys, plans, strict=True)])
        rows = accumulate(plan.unit_tokens(unit) for plan in plans for unit in range(plan.units))
        unit_ends = [positions[row - 1] + 1 for row in rows]
    pages = page_keys(prompt.token_ids, page_tokens, media)
    return PromptContents(page_tokens, media, pages, list(digests), unit_keys, unit_ends)


class Caches:
    """Hold the prefix caches and the visual caches of one engine, in each memory: where to look, not what is there."""

    def __init__(
        self, config: EngineConfig, placement: Placement, pools: Mapping[PoolKey, PagePool], processor: Processor
    ) -> None:
        """Create empty indexes of these pools; `placement` names the memory of each instance."""
        self._memories = {instance.name: instance.memory for instance in placement.instances}
        self._remembered: set[str] = set()
        if processor.shares_prefixes and not config.memory.no_prefix_cache:
            self._remembered.add("kv")
        if config.memory.visual_cache_mib:
            self._remembered.add("visual")
        self._readable: dict[str, tuple[str, str]] = {}  # an instance and its address, by memory
        self._encoded_elsewhere = placement.encoded_elsewhere
        self._indexes = {key: ContentIndex(pool) for key, pool in pools.items() if key[1] in self._remembered}

    def look_up(
        self,
        prefill: str,
        token_ids: Sequence[int],
        contents: PromptContents,
        *,
        whole: bool = False,
        anew: bool = False,
    ) -> Known:
        """Return what is known of a prompt and its answer. The instance `prefill` names the memory.

        No prefix is reused where the `whole` prompt is to be computed, and nothing where it begins `anew`. Units that
        other nodes have to encode are offered without an address.
        """
        keys = None
        if "kv" in self._remembered:
            keys = page_keys(token_ids, contents.page_tokens, contents.media, contents.page_keys)
        full = len(token_ids) // contents.page_tokens * contents.page_tokens
        reuse = Reuse()
        if not anew:
            reuse = self._find(self._memories[prefill], len(token_ids), None if whole else keys, contents)
        return Known(
            keys,
            contents.media.within(full, len(token_ids)),
            self.unit_keys(contents),
            _with_others(reuse, len(contents.unit_keys)) if self._encoded_elsewhere else reuse,
        )

    def unit_keys(self, contents: PromptContents) -> list[bytes]:
        """Return the keys of a prompt's units; none if they are not to be remembered."""
        return contents.unit_keys if "visual" in self._remembered else []

    def encoded(self, unit_keys: Sequence[bytes], units: Iterable[int]) -> dict[int, PageOffer]:
        """Return those units of a prompt with these keys that other nodes can read here. Nobody holds them."""
        found: dict[int, PageOffer] = {}
        for unit in units if unit_keys else ():
            for memory, (instance, address) in self._readable.items():
                index = self._indexes.get((memory, "visual"))
                if index and (pages := index.get(unit_keys[unit])):
                    found[unit] = PageOffer(instance, address, visual=pages)
        return found

    def _find(self, memory: str, num_tokens: int, keys: Sequence[bytes] | None, contents: PromptContents) -> Reuse:
        """Return what a memory has now of a sequence of `num_tokens` with these page keys.

        The last token is never reused.
        """
        page_tokens = contents.page_tokens
        kept = keys[: (num_tokens - 1) // page_tokens] if keys else []
        prefix = self._indexes[memory, "kv"].prefix(kept) if kept else Reuse().prefix
        covered = bisect_right(contents.unit_ends, len(prefix.numbers) * page_tokens)
        visual = self._indexes.get((memory, "visual"))
        units = range(covered, len(contents.unit_ends))
        there = _found(visual, contents, units)
        offers = self._elsewhere(contents, [unit for unit in units if unit not in there])
        return Reuse(prefix=prefix, covered=covered, units=there, offers=offers)

    def _elsewhere(self, contents: PromptContents, units: Sequence[int]) -> dict[int, PageOffer]:
        """Return where all of these units can be read in one other memory; nothing if that is nowhere.

        Reading takes milliseconds, and decoding and encoding media much longer: so it is always worth it.
        """
        for memory, (instance, address) in self._readable.items() if units else ():
            found = _found(self._indexes.get((memory, "visual")), contents, units)
            if len(found) == len(units):
                return {unit: PageOffer(instance, address, visual=pages) for unit, pages in found.items()}
        return {}

    def learn(self, instance: str, kept: Iterable[Kept], address: str = "") -> None:
        """Note what an instance has computed in its memory. Others can read it at an address, if there is one."""
        memory = self._memories[instance]
        if address:
            self._readable[memory] = instance, address
        for each in kept:
            self._indexes[memory, each.buffer].put(each.key, each.pages)

    def forget_addresses(self) -> None:
        """Note that nobody can be read from until it has said once more where: all workers are replaced."""
        self._readable.clear()


def _with_others(reuse: Reuse, units: int) -> Reuse:
    """Return what need not be computed where other nodes encode what is not here."""
    missing = {unit: _TO_BE_ENCODED for unit in range(units) if not reuse.has(unit)}
    return msgspec.structs.replace(reuse, offers={**reuse.offers, **missing})


def _found(index: ContentIndex | None, contents: PromptContents, units: Iterable[int]) -> dict[int, Pages]:
    """Return the pages of those units that an index knows."""
    if index is None:
        return {}
    found = ((unit, index.get(contents.unit_keys[unit])) for unit in units)
    return {unit: pages for unit, pages in found if pages is not None}
