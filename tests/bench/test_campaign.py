"""The campaign: cases are the same for the same seed, verdicts see what is wrong, the report names the cases.

Without a daemon: requests go to a server that is none.
"""

import asyncio
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from bench.campaign import campaign, gaps, report
from bench.campaign.cases import Kind, Outcome, Part, Seen, Target, ViolationError
from bench.campaign.command import name_of, options
from bench.campaign.gaps import Gap, Streams
from bench.campaign.parts import bombs, bystanders, checkpoints, fields, json_bodies, media_files, prompts
from bench.campaign.verdict import judge
from unifiedserve.models.default import DEFAULT_CHECKPOINT

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
LARGE = ("MiB", "MB", "8192", "million", "thousands", "giant texts", "one bit", "huge")
KINDS = [*json_bodies.KINDS, *fields.KINDS, *prompts.KINDS, *media_files.kinds(None), *bombs.KINDS]


def error(message: Any = "Wrong.", **more: Any) -> bytes:
    detail = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}
    return json.dumps({"error": detail}).encode()


async def requests_of(kind: Kind, seed: str) -> list[tuple[str, str, str, bytes]]:
    """Return what a case sends."""
    sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((request.method, str(request.url), str(request.headers), request.read()))
        return httpx.Response(400, content=error(), headers=JSON)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://127.0.0.1") as http:
        try:
            await kind.act(Target(http, "127.0.0.1", 1, "model", 32_768), Random(seed))
        except ViolationError:
            assert sent
    return sent


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if not any(word in kind.name for word in LARGE)], ids=lambda kind: kind.name
)
async def test_a_case_is_made_anew_from_its_seed(kind: Kind) -> None:
    first = [await requests_of(kind, f"1:{index}") for index in range(6)]
    assert first == [await requests_of(kind, f"1:{index}") for index in range(6)]
    assert len({str(each) for each in first}) > 1


def test_every_kind_comes_and_numbers_stay_what_they_are() -> None:
    part = Part("requests", KINDS, at_once=1)
    assert [part.kind_of(1, index) for index in range(len(KINDS))] == KINDS
    later = range(len(KINDS), len(KINDS) + 200)
    assert [part.kind_of(1, index).name for index in later] == [part.kind_of(1, index).name for index in later]
    assert [part.kind_of(1, index).name for index in later] != [part.kind_of(2, index).name for index in later]


def test_fields_are_those_of_the_document() -> None:
    names = {(field.endpoint, field.path) for field in fields.fields()}
    assert ("/v1/chat/completions", ("messages", 0, "content")) in names
    assert ("/v1/completions", ("logit_bias",)) in names
    assert ("/detokenize", ("tokens",)) in names


def test_a_damaged_file_is_damaged() -> None:
    data = media_files.real_files(None)[0].data
    damaged = [media_files.mutated(data, Random(seed)) for seed in range(50)]
    assert sum(each != data for each in damaged) > 40
    assert damaged == [media_files.mutated(data, Random(seed)) for seed in range(50)]


@pytest.mark.parametrize("kind", checkpoints.BREAKS, ids=[name for name, _, _ in checkpoints.BREAKS])
def test_a_broken_checkpoint_differs(kind: tuple[str, float, checkpoints.Break], tmp_path: Path) -> None:
    changed = 0
    for seed in range(4):
        folder = tmp_path / str(seed) / "model"
        shutil.copytree(DEFAULT_CHECKPOINT, folder)
        kind[2](folder, Random(seed))
        changed += contents(folder) != contents(DEFAULT_CHECKPOINT)
    assert changed >= 3


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (500, JSON, error()),
        (302, JSON, b""),
        (400, {"content-type": "text/html"}, b"<p>"),
        (400, JSON, b"{"),
        (400, JSON, b'{"detail": "x"}'),
        (400, JSON, error("")),
        (400, JSON, error("Traceback (most recent call last)")),
        (400, JSON, error("x" * 10_000)),
        (200, JSON, b"{"),
        (200, EVENTS, b"data: " + error("Internal error; the server's log has the details.") + b"\n\n"),
    ],
)
def test_what_must_not_be_is_a_violation(status: int, headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(ViolationError):
        judge(status, headers, body)


@pytest.mark.parametrize("status", [400, 413, 503, 504])
def test_proper_errors_are_none(status: int) -> None:
    assert judge(status, JSON, error()).status == str(status)
    with pytest.raises(ViolationError):
        judge(status, JSON, error(), expect=(200,))


def test_what_is_asked_for_is_proper_there_alone() -> None:
    assert judge(507, JSON, error(), expect=(507,)).status == "507"
    with pytest.raises(ViolationError):
        judge(507, JSON, error())


def outcome(index: int, began: float, ended: float, violation: str = "") -> Outcome:
    return Outcome("requests", index, f"kind {index}", began, ended, "400", "", violation)


def test_a_gap_is_long_beyond_what_a_quiet_server_and_the_machine_add() -> None:
    streams = Streams()
    streams.quiet = 0.1
    streams.gaps = [Gap(at=10, gap=0.34), Gap(at=11, gap=0.5, late=0.2), Gap(at=12, gap=0.4)]
    assert [gap.at for gap in streams.too_long()] == [12]
    assert [gap.at for gap in gaps.longest([*streams.gaps, Gap(at=12.1, gap=0.39)], 2)] == [12, 10]
    ran = [outcome(0, 11.0, 11.5), outcome(1, 11.5, 11.7), outcome(2, 13, 14)]
    assert [each.index for each in gaps.meanwhile(streams.gaps[2], ran)] == [1]


async def test_a_case_that_fails_in_any_way_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(target: Target, random: Random) -> Seen:
        raise KeyError("x")

    async def hangs(target: Target, random: Random) -> Seen:
        await asyncio.sleep(3600)
        return Seen("200")

    monkeypatch.setattr(campaign, "DEADLINE", 0.01)
    given, _ = options(["--seed", "3"])
    with campaign.Progress(disable=True) as progress:
        tried = campaign.Campaign(given, progress)
        part = Part("requests", [Kind("fails", 1, fails), Kind("hangs", 1, hangs)], at_once=1)
        seen = [await tried.run_case(part, index, None) for index in range(2)]  # type: ignore[arg-type]
    assert [finding.case for finding in report.findings_of(seen)] == ["requests:0", "requests:1"]
    assert "KeyError" in seen[0].violation


def test_the_report_names_cases_and_no_places(tmp_path: Path) -> None:
    outcomes = [outcome(0, 0, 1), outcome(1, 1, 3, "a status | of 500")]
    whole = report.Report(
        seed=7,
        seconds=3,
        parts={"requests": report.of_part(outcomes)},
        findings=report.findings_of(outcomes),
        quiet_gap_ms=20,
        gaps=[report.LongGap(300, 0, 10, ["requests:1 (kind 1)"])],
        stream_answers=4,
        memory_mib={"idle": 600},
        slowest=report.slowest_of(outcomes),
        replayed=[],
    )
    report.write(whole, tmp_path, "campaign")
    page = (tmp_path / "campaign.md").read_text()
    assert "| `requests:1` | kind 1 | a status \\| of 500 |" in page
    assert str(Path.home()) not in page
    assert json.loads((tmp_path / "campaign.json").read_text())["parts"]["requests"]["statuses"] == {
        "400": 1,
        "violation": 1,
    }
    assert whole.slowest[0][0] == "requests:1"


def test_tracebacks_are_found_in_a_log() -> None:
    log = ["INFO ok", "Traceback (most recent call last):", '  File "x", line 1', "    y", "ValueError: z", "INFO ok"]
    assert list(campaign._tracebacks(log)) == ["ValueError: z"]


def test_the_command_line() -> None:
    given, _ = options(["--quick", "--only", "media"])
    assert (given.count, list(given.parts)) == (400, ["media"])
    given, _ = options(["--case", "media:12"])
    assert list(given.cases_of("media")) == [12]
    assert list(given.cases_of("requests")) == []


@pytest.mark.parametrize(
    ("arguments", "name"),
    [([], "all"), (["--only", "signals", "--only", "attacks"], "attacks-signals"), (["--only", "media"], "media")],
)
def test_a_part_alone_does_not_overwrite_the_whole_report(arguments: list[str], name: str) -> None:
    given, folder = options(arguments)
    assert (folder.parts[-3:], name_of(given)) == (("bench", "results", "campaign"), name)


async def test_bystanders_are_held_to_their_answers() -> None:
    """Their first answers come at once; those beside the culprit when it has come, one of them another one."""
    asked: list[str] = []
    came = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        prompt = json.loads(request.content)["prompt"]
        asked.append(prompt)
        if asked.count(prompt) > 1:
            await came.wait()
        text = "other" if came.is_set() and prompt == "A river" else "right"
        return httpx.Response(200, json={"choices": [{"text": text}]})

    async def culprit(target: Target, random: Random) -> Seen:
        came.set()
        return Seen("400")

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://127.0.0.1") as http:
        target = Target(http, "127.0.0.1", 1, "model", 32_768)
        with pytest.raises(ViolationError, match="'A river' was answered otherwise: 'other' in place of 'right'"):
            await bystanders.among_bystanders(culprit)(target, Random(1))
