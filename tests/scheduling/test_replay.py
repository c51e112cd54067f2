"""Records of turns, in files: what is written, what `unifiedserve replay` says of it, and where none can be written."""

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_systems import KeptLog, recorded
from systems import COSTS

from unifiedserve.cli.app import main
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage
from unifiedserve.recording.folder import begin_run, prepare_folder, runs_in
from unifiedserve.recording.records import Made, decode
from unifiedserve.recording.replay import Replayed, replay
from unifiedserve.recording.turn import RecordedTurn
from unifiedserve.scheduling import Budget, policies
from unifiedserve.scheduling.simulation import Arrival, Rules
from unifiedserve.scheduling.state import Chunk, DecodeState
from unifiedserve.scheduling.turn import Facts, Free, Handed, Stepped

BUDGET = Budget(prefill_tokens=8, encode_tokens=8, max_running=4, kv_page_tokens=4, order="slack", short_tokens=16)
WORK = [
    *(Arrival(Ticket(uid, 2.0 * uid), [6 + uid], [], 12) for uid in range(4)),
    Arrival(Ticket(4, 1.0), [3, 0, 4], [5, 5], 6, decode=1, gop=2),
]
MADE = Made([Stage.DECODE], BUDGET, True, 1.0)
FACTS = Facts(1.0, Free(100, 100))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The records of a simulated system that decodes apart."""
    names = iter(["encode-prefill", "decode"])
    logs = recorded("shared", WORK, BUDGET, COSTS[1], Rules(), log_of=lambda: begin_run(tmp_path, next(names)))
    for log in logs:
        log.close()
    return tmp_path


@pytest.fixture
def replayed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[[Path], tuple[object, str]]:
    """Runs the command; returns its exit code and what it printed."""

    def run(folder: Path) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["unifiedserve", "replay", str(folder)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capfd.readouterr().out

    return run


Replay = Callable[[Path], tuple[object, str]]


def test_turns_that_decide_the_same_are_counted(folder: Path, replayed: Replay) -> None:
    code, out = replayed(folder)
    assert not code
    decode, encode = out.splitlines()
    assert decode.startswith("decode-1: ")
    assert encode.startswith("encode-prefill-1: ")
    assert all(line.endswith(" turns are alike") and int(line.split()[1]) > 10 for line in (decode, encode))


def test_the_first_turn_that_differs_is_shown(folder: Path, replayed: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = policies.schedule_decode
    monkeypatch.setattr(policies, "schedule_decode", lambda states, free, page, most: schedule(states, free, page, 1))
    code, out = replayed(folder)
    assert code == 1
    line, facts, first, second = out.splitlines()
    assert line.startswith("decode-1: turn ")
    assert "differs" in line
    assert facts.startswith("  facts:    Facts(now=")
    assert first.removeprefix("  recorded: ") != second.removeprefix("  decided:  ")


def test_a_record_that_is_cut_off_is_told_and_no_error(folder: Path, replayed: Replay) -> None:
    (path,) = folder.glob("decode-*")
    path.write_bytes(path.read_bytes()[:-3])
    code, out = replayed(folder)
    assert not code
    assert out.splitlines()[0].endswith(" turns are alike; its last record is cut off")


@pytest.mark.parametrize("left", [b"", b"\x05", b"\x05\0\0\0ab"])
def test_a_worker_that_was_killed_at_once_has_no_turns(tmp_path: Path, replayed: Replay, left: bytes) -> None:
    (tmp_path / "decode-1.turns").write_bytes(left)
    code, out = replayed(tmp_path)
    assert not code
    assert out.startswith("decode-1: 0 turns are alike")


@pytest.mark.parametrize("content", [b"\x02\0\0\0ab", b"\x03\0\0\0\x92\xa1x", b"\x04\0\0\0\x92\xa1xx"])
def test_a_file_that_is_no_record_is_one_line(tmp_path: Path, error_of: Callable[..., str], content: bytes) -> None:
    path = tmp_path / "decode-1.turns"
    path.write_bytes(content)
    assert f"{path}: this version cannot read record 1" in error_of("replay", str(tmp_path))


def test_a_folder_without_records_is_one_line(tmp_path: Path, error_of: Callable[..., str]) -> None:
    assert f"{tmp_path} holds no records" in error_of("replay", str(tmp_path))


def test_a_worker_that_is_started_again_begins_a_new_run(tmp_path: Path) -> None:
    for instance in ["decode"] * 11 + ["encode-prefill"]:
        begin_run(tmp_path, instance).close()
    names = [path.name for path in runs_in(tmp_path)]
    assert names == [*(f"decode-{run}.turns" for run in range(1, 12)), "encode-prefill-1.turns"]


def test_what_a_turn_was_told_is_written_about_each_second(tmp_path: Path) -> None:
    """Whoever kills the worker loses no more."""
    log = begin_run(tmp_path, "decode")
    turn = RecordedTurn(MADE, log)
    (path,) = runs_in(tmp_path)
    sizes = []
    for now in (0.0, 0.5, 1.5, 2.0, 3.0):
        turn.take(FACTS._replace(now=now))
        sizes.append(path.stat().st_size)
    log.close()
    assert 0 < sizes[0] == sizes[1] < sizes[2] == sizes[3] < sizes[4]


def test_a_full_disk_ends_the_record_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, replayed: Replay
) -> None:
    log = begin_run(tmp_path, "decode")
    turn = RecordedTurn(MADE, log)
    turn.take(FACTS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (runs_in(tmp_path)[0].stat().st_size + 5, limits[1]))
    try:
        for now in (3.0, 5.0, 7.0):
            assert turn.take(FACTS._replace(now=now)).plan.wait_until > now
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.close()
    (warning,) = caplog.messages
    assert warning == f"--record: nothing more goes to {tmp_path / 'decode-1.turns'}: File too large"
    assert replayed(tmp_path) == (0, "decode-1: 1 turns are alike; its last record is cut off\n")


def test_a_worker_starts_again_where_nothing_can_be_recorded_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = tmp_path / "gone"
    log = begin_run(gone, "decode")
    turn = RecordedTurn(MADE, log)
    assert turn.take(FACTS).plan.wait_until > FACTS.now
    log.close()
    assert caplog.messages == [f"--record: nothing more goes to {gone / 'decode-1.turns'}: No such file or directory"]


def test_an_event_that_a_turn_does_not_know_is_told_again() -> None:
    """Part of it was taken in: the sequence has ended, though the prompt beside it was not there."""
    log = KeptLog()
    turn = RecordedTurn(MADE, log)
    turn.note(Handed(DecodeState(Ticket(1, 0.0), 0, 20, 5)))
    turn.take(FACTS)
    with pytest.raises(KeyError):
        turn.note(Stepped([0.0, 0.1], [Chunk(2, 0, 5)], [(1, 0)], [], beside=False))
    assert not turn.take(FACTS).plan.decode
    assert replay(map(decode, log.data)) == Replayed(2)


def test_a_folder_is_made(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert runs_in(tmp_path / "a" / "b") == []


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_records_do_not_go_where_a_file_is(tmp_path: Path, error_of: Callable[..., str], place: str) -> None:
    (tmp_path / "file").touch()
    line = error_of("serve", "--port", "0", "--record", str(tmp_path / place))
    assert f"--record {tmp_path / place}: " in line
    assert "give a folder" in line


def test_records_do_not_go_beside_others(folder: Path, error_of: Callable[..., str]) -> None:
    before = [path.read_bytes() for path in runs_in(folder)]
    line = error_of("serve", "--port", "0", "--record", str(folder))
    assert f"--record {folder}: decode-1.turns is there from an earlier server: give an empty folder" in line
    assert [path.read_bytes() for path in runs_in(folder)] == before
