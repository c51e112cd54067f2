"""Tell those that may wait for pages when some come free."""

from unifiedserve.placement import Stage
from unifiedserve.worker.outbox import Outbox


class FreedPages:
    """Tell hosts that take pages of a memory that there are more: vision patch and visual, prefill KV pages.

    With `keeps_visual` answers hold visual pages, too. Where pages travel, those take some that read them.
    """

    def __init__(self, outbox: Outbox, memory: str, *, keeps_visual: bool, travels: bool) -> None:
        self._outbox = outbox
        self._memory = memory
        self._travels = travels
        self._keeps_visual = keeps_visual

    def by_encode(self) -> None:
        """Tell vision: patches were encoded."""
        self._tell(Stage.VISION)

    def by_prefill(self) -> None:
        """Tell vision, and the readers of visual tokens: some were prefilled."""
        self._tell(Stage.VISION)
        self._tell_readers(Stage.PREFILL)

    def by_dropped_prompt(self) -> None:
        """Tell all: a prompt has left, or what came for it when it had."""
        self._tell(Stage.VISION, Stage.PREFILL)

    def by_sender(self) -> None:
        """Tell all: pages held for another memory were read there, or are not wanted any more."""
        self._tell(Stage.VISION, Stage.PREFILL)

    def by_answers(self) -> None:
        """Tell takers of KV pages that answers have ended. Vision hears it, too, where answers hold visual pages."""
        self._tell(Stage.PREFILL, *([Stage.VISION] if self._keeps_visual else []))
        self._tell_readers(Stage.DECODE)

    def _tell_readers(self, stage: Stage) -> None:
        if self._travels:
            self._outbox.tell_freed(stage, self._memory)

    def _tell(self, *stages: Stage) -> None:
        for stage in stages:
            self._outbox.tell_freed(stage, self._memory, oneself=True)
