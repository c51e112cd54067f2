"""Measure a server, and read the figures of the report: `python examples/measure_a_server.py [URL [FOLDER]]`."""

import json
import subprocess
import sys
from pathlib import Path

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
OUT = Path(sys.argv[2] if len(sys.argv) > 2 else "measured")

# Two users, each of whom asks again as soon as the answer is complete, eight texts in all.
command = [sys.executable, "-m", "unifiedserve.cli", "bench", "run", "--url", URL, "--workload", "text"]
command += ["--arrivals", "closed:2", "--requests", "8", "--slo-ttft", "1", "--slo-tbt", "0.1", "--out", str(OUT)]
subprocess.run(command, check=True)

(run,) = json.loads((OUT / "figures.json").read_text())  # seconds; `kinds` has the same for each kind of request
figures = run["all"]
print(
    f"the first token after {figures['ttft']['p50']:.2f} s, the next ones every {1000 * figures['tbt']['p50']:.0f} ms"
)
print(f"{figures['attainment']:.0%} of the requests kept to both targets; {OUT / 'report.html'} shows them all")
