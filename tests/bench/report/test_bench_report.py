"""Reports: files that hold all of a run and nothing foreign, tables, and the page, for runs of any size."""

import io
import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from sample_runs import make_run

from unifiedserve.bench.metrics.summary import Yardstick, summarise
from unifiedserve.bench.records import Record, Run, Timing
from unifiedserve.bench.report.comparison import base_of, differences, group_rounds, ratios, readable
from unifiedserve.bench.report.files import load_run, save_run
from unifiedserve.bench.report.page import make_page
from unifiedserve.bench.report.plots.attainment import draw_attainment_over_rate
from unifiedserve.bench.report.plots.timelines import draw_timelines
from unifiedserve.bench.report.provenance import describe_commit, describe_machine, describe_versions
from unifiedserve.bench.report.rates import rate_points
from unifiedserve.bench.report.rows import ROWS, digits, spread
from unifiedserve.bench.report.terminal import print_comparison, print_summary
from unifiedserve.bench.report.write import write_report
from unifiedserve.bench.slo import Slo
from unifiedserve.errors import ConfigError

SECTIONS = {"targets", "figures", "attainment-over-rate", "attainment-over-scale", "distributions", "timelines"}
SECTIONS |= {"gantt", "progress", "phases", "all-figures", "failures", "provenance"}
PICTURES = {"attainment-over-scale", "distributions", "timelines", "gantt", "progress"}
YARDSTICK = Yardstick(slo=Slo(ttft=1.0, ttft_per_video_second=0.06, tbt=0.08))
VOID = {"meta", "br", "img", "link"}


class Page(HTMLParser):
    """What a browser would see of a page: elements in order, sections with pictures, what is loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: dict[str, int] = {}
        self.loaded: list[str] = []
        self.words: list[str] = []
        self.missed: list[str] = []
        self._marked = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.sections[found["id"] or ""] = 0
        if tag == "svg":
            self.sections[list(self.sections)[-1]] += 1
        self._marked = found.get("class") == "missed"
        links = [found.get(name) or "" for name in ("src", "href", "xlink:href")]
        self.loaded += [link for link in links if link and not link.startswith(("#", "data:"))]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._marked:
            self.missed.append(data)
            self._marked = False


def shown(run: Run, yardstick: Yardstick = YARDSTICK) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system="standard", legacy_windows=False)
    print_summary(run, yardstick, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def one_of(records: list[Record]) -> Run:
    run = make_run("hand-made", 0)
    run.records = records
    return run


def failed_run() -> Run:
    refused = "the server answered 400: no <video> here"
    return one_of([Record(request=f"r{n}", kind="text", due=n, sent=n, ended=n + 0.1, error=refused) for n in range(3)])


SMALL = {
    "empty": make_run("empty", 0),
    "one": make_run("one", 1),
    "failed": failed_run(),
    "one token": one_of([Record(request="r", kind="text", due=0.0, sent=0.0, token_times=[0.5], ended=0.5)]),
}


@pytest.fixture(scope="module")
def broken_off() -> Run:
    run = make_run("shared", 30)
    run.interrupted = "the server died"
    run.cautions = ["the client could not send so fast"]
    run.timing = Timing(late_p50=0.001, late_p99=0.25, late_max=0.5, loop_late_p99=0.002, cpu=0.9)
    return run


@pytest.fixture(scope="module")
def text(broken_off: Run) -> str:
    return make_page([broken_off], YARDSTICK)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_a_run_comes_back_as_it_was_written(tmp_path: Path) -> None:
    run = make_run("shared", 20)
    save_run(run, tmp_path / "new" / "run.json")
    assert load_run(tmp_path / "new" / "run.json") == run
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not a run"),
        (b"\xff\xfe", "is not a run"),
        (b"[1, 2]", "is not a run"),
        (b'{"format": "other", "version": 1}', "is not a run"),
        (b'{"results": [], "version": 1}', "is not a run"),
        (b'{"format": "unifiedserve-bench-run", "version": 7, "run": {}}', "version 7"),
        (b'{"format": "unifiedserve-bench-run", "version": 1, "run": {"name": 3}}', r"is damaged: .*name"),
        (
            b'{"format": "unifiedserve-bench-run", "version": 1, "run": {"name": "\xff"}}',
            r"damaged: .*(decode|UTF-8)",
        ),
        (b'{"format": "unifiedserve-bench-run", "version": 1, "run": ' + b"[" * 100_000, "is not a run"),
    ],
    ids=["empty", "bytes", "list", "other", "no format", "version", "damaged", "no text", "deep"],
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "foreign.json").write_bytes(content)
    with pytest.raises(ConfigError, match=told) as refused:
        load_run(tmp_path / "foreign.json")
    assert "foreign.json" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.json cannot be read: No such file"):
        load_run(tmp_path / "gone.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        save_run(make_run("shared", 1), tmp_path / "file" / "run.json")


def test_a_report_is_a_page_figures_and_the_runs(tmp_path: Path) -> None:
    runs = [make_run("slack", 30), make_run("fcfs", 30, slow=1.5)]
    page, figures, *files = write_report(runs, YARDSTICK, tmp_path)
    assert [load_run(path) for path in files] == runs
    found = json.loads(figures.read_text())
    assert found[1]["name"] == "fcfs"
    assert found[1]["all"]["ttft"]["p50"] == pytest.approx(summarise(runs[1].records, YARDSTICK).ttft.p50)  # type: ignore[union-attr]
    assert set(found[0]["kinds"]) == {record.kind for record in runs[0].records}
    assert Page(page.read_text()).sections.keys() == SECTIONS
    ids = [part.partition('"')[0] for part in page.read_text().split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    with pytest.raises(ConfigError, match="no run"):
        write_report([], YARDSTICK, tmp_path)


def test_the_page_of_a_run_has_its_pictures_and_needs_nothing_from_elsewhere(text: str, page: Page) -> None:
    assert page.open == []
    assert page.loaded == []
    assert "url(http" not in text
    assert "@import" not in text
    assert page.sections.keys() == SECTIONS
    assert {name for name, pictures in page.sections.items() if pictures} == PICTURES
    assert "shapes & <b>colours</b>" in page.words  # the model's name, as text
    assert "currentColor" in text
    assert "#010203" not in text
    assert "prefers-color-scheme: dark" in text


def test_runs_at_several_rates_show_attainment_over_rate_and_goodput() -> None:
    runs = [make_run(name, 40, rate) for name in ("slack", "fcfs") for rate in (0.1, 4.0)]
    drawn = draw_attainment_over_rate(group_rounds(runs, YARDSTICK))
    assert "slack: goodput" in (drawn or "")
    assert draw_attainment_over_rate(group_rounds(runs[:1], YARDSTICK)) is None
    console = Console(file=io.StringIO(), width=200)
    print_comparison(runs, YARDSTICK, console)
    assert "fcfs: goodput" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SMALL)
def test_runs_with_next_to_nothing_are_reported(name: str) -> None:
    page = Page(make_page([SMALL[name]], YARDSTICK))
    assert page.sections.keys() == SECTIONS
    assert SMALL[name].name in shown(SMALL[name])


def test_runs_with_next_to_nothing_are_compared() -> None:
    page = Page(make_page(list(SMALL.values()), Yardstick()))
    assert page.sections["attainment-over-scale"] == 0
    assert "the server answered 400: no <video> here" in page.words


def test_what_misses_its_target_is_red(broken_off: Run, page: Page) -> None:
    overall = summarise(broken_off.records, YARDSTICK)
    assert digits((overall.attainment or 0.0) * 100) in page.missed
    slow = one_of([Record(request="r", kind="text", due=0.0, sent=0.0, token_times=[1.5, 1.52], ended=1.52)])
    assert "\x1b[1;31m1.50\x1b[0m" in shown(slow)  # TTFT, s
    assert "\x1b[1;31m20" not in shown(slow)  # TBT, ms
    assert "\x1b[1;31m1.50\x1b[0m" not in shown(slow, Yardstick())


def test_a_run_without_targets_says_that_there_are_none() -> None:
    without = shown(one_of([Record(request="r", kind="text", due=0.0, sent=0.0, token_times=[1.5])]), Yardstick())
    assert "There are no targets to meet: --slo-ttft" in without
    assert "attainment" not in without
    assert "no targets" not in shown(failed_run())


def test_failures_are_told_by_message() -> None:
    assert "3 failed: the server answered 400: no <video> here" in shown(failed_run())


def test_a_run_that_broke_off_says_so_first(broken_off: Run, page: Page) -> None:
    body = " ".join(page.words)
    assert body.index("shared is not complete: the server died") < body.index("Targets")
    assert "shared is not complete: the server died" in shown(broken_off).splitlines()[0]


def test_rounds_are_put_together_and_compared_with_the_first() -> None:
    runs = [make_run(name, 20, slow=slow, seed=seed) for name, slow in (("a", 1), ("b", 2)) for seed in (1, 2, 3)]
    groups = group_rounds(runs, YARDSTICK)
    assert [(group.label, len(group.rounds)) for group in groups] == [("a", 3), ("b", 3)]
    ttft = next(row for row in ROWS if row.label == "TTFT, s, p50")
    assert ratios(ttft, groups[1], groups[0]) == pytest.approx([2, 2, 2])
    assert differences(runs) == []


def test_rounds_that_are_not_of_the_same_are_put_together_with_a_warning() -> None:
    before, after = make_run("a", 5), make_run("a", 5)
    after.model, after.versions = "another", {"server": "2"}
    console = Console(file=io.StringIO(), width=300)
    print_comparison([before, after], YARDSTICK, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a (2 rounds)" in text
    assert "though not of the same model (another, shapes & <b>colours</b>): tell them apart by --name" in text
    assert "though not of the same version of the server" in text
    assert "same workload" not in text


def test_a_closed_loop_has_no_rate_that_counts_as_goodput() -> None:
    alone, slow, fast = make_run("a", 20, 50.0), make_run("a", 20, 0.1), make_run("a", 20, 4.0)
    alone.arrivals = "closed:1"
    groups = group_rounds([alone, slow, fast], Yardstick(slo=Slo(ttft=1e9)))
    (points,) = rate_points(groups).values()
    assert len(points) == 2
    assert max(rate for rate, _ in points) < 10


def test_names_are_compared_at_the_same_arrivals() -> None:
    runs = [make_run(name, 10, rate) for name in ("a", "b", "c") for rate in (1.0, 0.5, 2.0)]
    groups = group_rounds([*runs, make_run("d", 10, 7.0)], YARDSTICK)
    by_label = {group.label: group for group in groups}
    assert base_of(by_label["b, poisson 2/s"], groups) is by_label["a, poisson 2/s"]
    assert base_of(by_label["d"], groups) is groups[0]
    assert [group.label for group in readable(groups, 6)] == ["a, poisson 1/s", "b, poisson 1/s", "c, poisson 1/s"]


def test_what_the_client_warns_of_is_shown(broken_off: Run, page: Page) -> None:
    assert "shared: the client could not send so fast" in page.words
    assert any("p99 250 ms, at most 500 ms" in word for word in page.words)
    assert "warning: shared: the client could not send so fast" in shown(broken_off)


def test_a_warning_says_what_differs() -> None:
    ours, theirs = make_run("a", 5), make_run("b", 5, seed=4)
    theirs.workload = "texts only"
    told = differences([ours, theirs])
    assert [warning.split(",")[0] for warning in told] == ["not the same workload", "not the same seed"]
    assert "a: mixed; b: texts only" in told[0]
    console = Console(file=io.StringIO(), width=200)
    print_comparison([ours, theirs], YARDSTICK, console)
    assert "warning: not the same seed" in console.file.getvalue()  # type: ignore[attr-defined]


def test_numbers_have_three_digits() -> None:
    assert [digits(value) for value in (1234.5, 123.4, 12.34, 1.234, 0.01234, 0.0, 3.0, None)] == [
        *("1,234", "123", "12.3", "1.23", "0.0123", "0", "3", "–")
    ]
    assert spread([3.0, 1.0, 2.5]) == "2.50 (1–3)"


def test_many_tokens_become_pixels_and_the_page_stays_small() -> None:
    drawn = draw_timelines({"big": make_run("big", 200, 20.0, tokens=500).records}) or ""
    assert 'xlink:href="data:image/png' in drawn
    assert len(drawn) < 500_000
    assert "60 of 200 requests" in drawn


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_commit_is_that_of_the_checkout_and_of_nothing_around_it(tmp_path: Path) -> None:
    assert describe_commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    (tmp_path / "installed").mkdir()
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert commit.startswith(describe_commit(tmp_path) or "nothing")
    (tmp_path / "file").write_text("2")
    assert (describe_commit(tmp_path) or "").endswith("-dirty")
    assert describe_commit(tmp_path / "installed") is None


def test_the_machine_and_versions_are_texts() -> None:
    found = describe_machine() | describe_versions()
    assert {"cpu", "cores", "memory", "python", "numpy"} <= found.keys()
    assert msgspec.convert(found, dict[str, str]) == found
