"""Pictures of results are drawn again from the figures beside them."""

import shutil
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def test_pictures_come_from_saved_figures_alone(tmp_path: Path) -> None:
    saved = ["papers/migration/figures.json", "scheduler-step.json", "campaign/faults-by-stage.json"]
    for name in saved:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BENCH / "results" / name, tmp_path / name)
    drawn = subprocess.run(
        [sys.executable, str(BENCH / "draw.py"), "--folder", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert set(drawn.stdout.split()) == set(saved)
    pictures = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png")}
    assert pictures == {
        "campaign/faults-by-stage.png",
        "papers/migration/rates.png",
        "papers/migration/stages.png",
        "scheduler-step.png",
    }
    assert all((tmp_path / name).stat().st_size > 5_000 for name in pictures)
