"""Pages are free again as soon as they are consumed, so others can begin while a long video is still prefilled."""

from collections.abc import Callable
from pathlib import Path

from inline_workers import InlineWorkers, as_sent
from media import Clip
from questions import ask

from unifiedserve.config import EngineConfig
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import FIRST_MEMORY, Stage, read_placement

FRAMES = 64


def test_pages_of_a_long_video_go_back_unit_by_unit(
    checkpoint: Path, clips: Callable[[int], Clip], tmp_path: Path
) -> None:
    """Those for its visual tokens are taken at once; steps are as long as their budgets here."""
    config = EngineConfig.of(encode_budget_tokens=1, prefill_chunk_tokens=16, order="fcfs", vision_threads=1)
    processor = load_processor(checkpoint)
    workers = InlineWorkers(read_placement("shared", ()), checkpoint, processor, config)
    try:
        every_frame = {"media_io_kwargs": {"video": {"num_frames": -1}}}
        sent = as_sent(ask([clips(FRAMES), "What happens?"], clips, every_frame), processor, clips, tmp_path)
        workers.submit(1, sent, SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
        used: list[int] = []
        while not workers.tokens[1]:
            workers.turn()
            used.append(workers.used_pages()[FIRST_MEMORY, "visual"])
        held = [pages for pages in dict.fromkeys(used) if pages]
        assert held == sorted(held, reverse=True), "all are taken with the first unit"
        assert len(held) > FRAMES // 4, "few go back at a time"
        assert workers.memory.status.peak(Stage.ENCODE, FIRST_MEMORY) == held[0]
        workers.answer(1)
        assert set(workers.used_pages().values()) == {0}
    finally:
        workers.close()
