"""The project's own tests that can use a GPU."""

import subprocess
import sys
import xml.etree.ElementTree as Xml
from pathlib import Path

from bench.gpu import machine
from bench.gpu.figures import Figures

FAILURES = 20  # of which the first lines are kept


def pytest(figures: Figures, *arguments: str) -> None:
    """Run pytest with arguments; count its outcomes and keep why tests failed or were skipped."""
    results = Path("results.xml").resolve()
    options = ["-p", "no:cacheprovider", "-o", "addopts=", "--strict-markers", "--tb=short", f"--junitxml={results}"]
    done = subprocess.run([sys.executable, "-m", "pytest", *options, *arguments], cwd=machine.ROOT)
    if not results.exists():
        raise RuntimeError(f"pytest ended with code {done.returncode} before any test")
    cases = Xml.parse(results).getroot().findall(".//testcase")
    bad = [(case, found) for case in cases for found in (*case.findall("failure"), *case.findall("error"))]
    skips = {_line(found) for case in cases for found in case.findall("skipped")}
    skipped = sum(case.find("skipped") is not None for case in cases)
    figures.add(
        passed=len(cases) - skipped - len({case.get("name") for case, _ in bad}),
        failed=len(bad),
        skipped=skipped,
        failures=[
            {"test": f"{case.get('classname')}.{case.get('name')}", "why": _line(found)}
            for case, found in bad[:FAILURES]
        ],
        skip_reasons=sorted(skips)[:FAILURES],
    )
    if done.returncode != 0:
        raise RuntimeError(f"{len(bad)} of {len(cases)} tests failed")


def _line(found: Xml.Element) -> str:
    return " ".join((found.get("message") or "").split())[:300]
