"""Figures of papers that are simulated: what a system does is what its costs say, and numbers stand beside the "
"papers'."""

import random
from pathlib import Path

import pytest
import simulate
import typer
from simulated import epd, epd_memory, hydrainfer, modserve
from simulated.figure import Claim, Figure, Panel, claims_table, save
from simulated.requests import some
from simulated.targets import Target, attainment, curve, goodput, ttft
from typer.testing import CliRunner

MINICPM = epd.MODELS[0]


def alone(system: epd.System, images: int) -> float:
    arrivals = some(0.01, 1, MINICPM.make(images, output=1))
    return ttft(arrivals[0], system.serve(arrivals)[0])


@pytest.mark.parametrize("images", [2, 4])
def test_five_encoders_take_a_fifth_of_the_time_of_a_request_that_is_alone(images: int) -> None:
    """All else takes as long: its prompt, and what travels."""
    parallel, one = (alone(system, images) for system in epd.systems(MINICPM)[:2])
    tokens = images * MINICPM.tiles * MINICPM.tile_tokens
    assert one - parallel == pytest.approx(0.8 * tokens * MINICPM.costs.visual_token, rel=0.02)


def test_a_course_of_a_paper_is_held_at_a_low_rate_and_lost_at_a_high_one() -> None:
    work = hydrainfer.TEXTCAPS._replace(generate=10, target=Target(2.0, 0.08))
    system = hydrainfer.hydrainfer("1ep+1d", work)
    assert hydrainfer.attained(system, work, 1.0) == 1.0
    assert hydrainfer.attained(system, work, 20.0) < 0.6


def test_what_has_more_encoders_waits_less_for_a_burst_of_images() -> None:
    arrivals = modserve.requests(modserve.LLAMA, 4.0, seconds=5.0)
    few, many = (modserve.first_tokens(modserve.modserve(modserve.LLAMA, 2, n), arrivals) for n in (1, 8))
    assert max(many) < max(few)


def test_goodput_is_where_the_attainment_falls_below_its_least() -> None:
    assert goodput([(1.0, 1.0), (2.0, 0.8), (3.0, 0.1)]) == pytest.approx(1.5)
    assert goodput([(1.0, 0.5)]) == 0.0
    assert goodput([(1.0, 1.0), (2.0, 0.95)]) == 2.0
    assert [rate for rate, _ in curve(lambda rate: 1 - rate / 10, (1, 5, 9))] == [1, 5]


def test_a_request_holds_its_target_by_a_part_of_its_gaps_or_by_their_mean() -> None:
    [arrival] = some(1.0, 1, MINICPM.make(1))
    start = arrival.ticket.arrival
    tokens = {0: [start + 1 + gap for gap in (0.0, 0.1, 0.2, 0.3, 1.3)]}
    assert attainment([arrival], tokens, Target(1.5, 0.2, 0.75)) == 1.0
    assert attainment([arrival], tokens, Target(1.5, 0.2, 0.9)) == 0.0
    assert attainment([arrival], tokens, Target(1.5, 0.3, 0)) == 0.0
    assert attainment([arrival], tokens, Target(0.5, 2.0)) == 0.0


def test_memory_that_is_out_in_the_paper_is_out_here() -> None:
    claims = [*epd_memory.table_3().claims, *epd_memory.table_4().claims]
    out = [claim for claim in claims if isinstance(claim.paper, str)]
    assert len(out) > 8
    assert all(claim.simulated == claim.paper for claim in out)


def test_caches_beside_images_are_within_a_tenth_of_the_paper() -> None:
    off = [claim.off for claim in epd_memory.table_4().claims if claim.off is not None]
    assert len(off) > 12
    assert all(abs(each) < 0.1 for each in off)


def test_requests_of_a_trace_have_its_shares() -> None:
    arrivals = modserve.requests(modserve.LLAMA, 50.0, seconds=60.0)
    with_images = [each for each in arrivals if each.units]
    assert len(with_images) / len(arrivals) == pytest.approx(modserve.WITH_IMAGES, abs=0.1)
    assert {len(each.units) for each in with_images} == {1, 4, 9, 16}
    assert sorted(each.ticket.arrival for each in arrivals) == [each.ticket.arrival for each in arrivals]


def test_a_figure_is_saved_with_its_picture_and_stands_in_the_table(tmp_path: Path) -> None:
    lines: dict[str, list[tuple[float | str, float]]] = {"ours": [(1.0, 0.5), (2.0, 0.25)]}
    panels = [Panel(title="a", x="x", y="y", lines=lines), Panel(title="b", x="x", y="y", lines=lines, kind="bars")]
    claims = [Claim("near", 1.1, 1.0), Claim("far", 3.0, 2.0), Claim("in words", "yes", "yes")]
    figure = Figure(name="one", paper="Paper Fig. 1", shows="it", panels=panels, claims=claims, note="Why.")
    assert [path.name for path in save(figure, tmp_path)] == ["one.json", "one.png"]
    assert (tmp_path / "one.png").stat().st_size > 1000
    table = claims_table([figure])
    assert "| near | 1.1 | 1 | +10% |" in table
    assert "| far | 3 | 2 | **+50%** |" in table


def test_the_command_writes_what_is_asked_for_and_names_what_there_is(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(simulate.main)
    assert CliRunner().invoke(app, ["epd-table-4", "--out", str(tmp_path)]).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"epd-table-4.json", "README.md"}
    assert "| EPD Table 4 |" in (tmp_path / "README.md").read_text()
    unknown = CliRunner().invoke(app, ["hydrainfer-99"])
    assert unknown.exit_code == 2
    assert "hydrainfer-14" in unknown.stderr


def test_the_same_seed_gives_the_same_requests() -> None:
    first, again = (some(2.0, 5, hydrainfer.TEXTCAPS.make, seed=3) for _ in range(2))
    assert first == again
    assert first != some(2.0, 5, hydrainfer.TEXTCAPS.make, seed=4)
    assert hydrainfer.TEXTCAPS.make(random.Random(0), first[0].ticket).units
