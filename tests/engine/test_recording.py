"""What real workers record is decided again, bit by bit; a policy that has changed is noticed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from string import digits
from typing import NamedTuple

import pytest
from inline_workers import PAGES, InlineWorkers, as_sent
from media import Clip
from questions import ask
from recorded_arrivals import arrivals_of, costs_of, orders_of

from unifiedserve.config import EngineConfig
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import Stage, read_placement
from unifiedserve.recording.folder import runs_in
from unifiedserve.recording.log import read_log
from unifiedserve.recording.records import Between, Looked, Made, Record, Taken, decode
from unifiedserve.recording.replay import replay_file
from unifiedserve.scheduling.simulation import Cores, FreePages, Simulator
from unifiedserve.scheduling.state import Plan, PrefillState
from unifiedserve.scheduling.turn import Begin, Decision, Encoded, Facts, Left, Ready, Stopped, Turn, vision
from unifiedserve.scheduling.turn.vision import MediaCame, MediaLeft, MediaTook, VisionDecision

VIDEO, GONE, FIRST, SECOND = range(1, 5)
LONG = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)


class Recorded(NamedTuple):
    """The records of a run, by instance."""

    records: dict[str, list[Record]]

    @property
    def events(self) -> list[Record]:
        return [record for records in self.records.values() for record in records]

    @property
    def plans(self) -> list[Plan]:
        return [record.decision.plan for record in self.events if isinstance(record, Taken | Between)]

    @property
    def visions(self) -> list[VisionDecision]:
        return [record.decision for record in self.events if isinstance(record, Looked)]


@pytest.fixture(scope="module", params=["shared", "monolithic", "2e+2p+d", "2ep+d with dual streams"])
def folder(
    request: pytest.FixtureRequest,
    checkpoint: Path,
    clips: Callable[[int], Clip],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """Record an aborted text, then a video beside two texts, for whose answers there is no room at once."""
    placement, _, dual = request.param.partition(" with ")
    folder, processor = tmp_path_factory.mktemp(placement), load_processor(checkpoint)
    config = EngineConfig.of(
        record=str(folder),
        kv_page_tokens=1,
        encode_budget_tokens=16,
        prefill_chunk_tokens=32,
        dual_streams="on" if dual else "auto",
    )
    every_frame = {"media_io_kwargs": {"video": {"num_frames": -1}}}
    video = as_sent(ask([clips(8), "What happens?"], clips, every_frame), processor, clips, folder)
    text = as_sent(ask(["What is a river?"], clips), processor, clips, folder)
    workers = InlineWorkers(read_placement(placement, ()), checkpoint, processor, config)
    try:
        workers.submit(GONE, text, LONG)
        workers.run_until(lambda: len(workers.tokens[GONE]) > 3)
        workers.abort(GONE)
        workers.run_until(lambda: GONE in workers.drained)
        workers.submit(VIDEO, video, LONG)
        workers.submit(FIRST, text, LONG)
        workers.submit(SECOND, text, LONG)
        workers.answer(VIDEO)
    finally:
        workers.close()
    yield folder  # noqa: PT022 -- the workers live on: their end, too, would close the files


@pytest.fixture(scope="module")
def recorded(folder: Path) -> Recorded:
    return Recorded({path.stem: list(map(decode, read_log(path)[0])) for path in runs_in(folder)})


def test_all_that_happens_is_on_record(recorded: Recorded) -> None:
    kinds = {type(record) for record in recorded.events}
    assert {Begin, Ready, Encoded, Left, Stopped, Taken, MediaCame, MediaTook, MediaLeft} <= kinds
    assert [uid for decision in recorded.visions for uid in decision.admit] == [VIDEO]
    assert {uid for plan in recorded.plans for uid, _ in plan.encode} == {VIDEO}
    assert {chunk.uid for plan in recorded.plans for chunk in plan.prefill} == {VIDEO, GONE, FIRST, SECOND}
    assert any(plan.preempt for plan in recorded.plans), "there was room for all"


def test_what_real_workers_decided_is_decided_again(folder: Path, recorded: Recorded) -> None:
    assert len(recorded.plans) > 50
    for path in runs_in(folder):
        turns = sum(isinstance(record, Taken | Between | Looked) for record in recorded.records[path.stem])
        replayed = replay_file(path)
        assert (replayed.difference, replayed.cut, replayed.alike) == (None, False, turns)


def test_a_policy_that_has_changed_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, the chunks of prompts are shorter; who does not prefill knows nothing of that."""
    whole = PrefillState.chunk_end
    monkeypatch.setattr(PrefillState, "chunk_end", lambda state, most: whole(state, max(1, most // 2)))
    differing = {path.stem for path in runs_in(folder) if replay_file(path).difference}
    assert differing == {
        name for name in (path.stem for path in runs_in(folder)) if "prefill" in name or "language" in name
    }


def test_a_rule_of_vision_that_has_changed_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, nobody is let in."""
    monkeypatch.setattr(vision, "schedule_vision", lambda *facts: [])
    differing = [path.stem for path in runs_in(folder) if replay_file(path).difference]
    assert differing == ["vision-1"]


def test_what_came_and_how_long_steps_took_is_enough_to_simulate_the_order_of_plans(
    folder: Path, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine of one core, for the workers of the recording have taken turns."""
    uids = (VIDEO, FIRST, SECOND)
    took = [(each.facts.now, each.decision.plan) for each in recorded.events if isinstance(each, Taken | Between)]
    made = [each for each in recorded.events if isinstance(each, Made)]
    budget = next(each.budget for each in made if Stage.DECODE in each.hosted)
    arrivals = arrivals_of(recorded.records, uids)
    simulated: list[tuple[float, Plan]] = []
    take = Turn.take

    def noted(turn: Turn, facts: Facts) -> Decision:
        decision = take(turn, facts)
        simulated.append((facts.now, decision.plan))
        return decision

    monkeypatch.setattr(Turn, "take", noted)
    simulator = Simulator(
        read_placement(folder.name.rstrip(digits), ()),
        budget,
        FreePages(PAGES, PAGES, PAGES),
        arrivals,
        costs_of(recorded.events),
        Cores(1),
    )
    simulator.run()
    assert simulator.unfinished == []
    assert orders_of(simulated, uids) == orders_of(took, uids)
    assert orders_of(took, uids)[Stage.ENCODE] == [VIDEO]
