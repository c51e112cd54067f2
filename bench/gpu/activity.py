"""How busy a GPU is, as nvidia-smi sees it, while something is measured."""

import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

COLUMNS = ("utilization.gpu", "utilization.decoder", "power.draw")
MILLISECONDS = 200


@contextmanager
def activity() -> Iterator[dict[str, float]]:
    """Yield a dict that has the means of COLUMNS when the `with` has ended; it stays empty where nobody tells."""
    means: dict[str, float] = {}
    program = shutil.which("nvidia-smi")
    if program is None:
        yield means
        return
    query = [f"--query-gpu={','.join(COLUMNS)}", "--format=csv,noheader,nounits", f"--loop-ms={MILLISECONDS}"]
    with tempfile.TemporaryFile("w+") as output:
        watching = subprocess.Popen([program, *query, "--id=0"], stdout=output, stderr=subprocess.DEVNULL)
        try:
            yield means
        finally:
            watching.kill()
            watching.wait()
        output.seek(0)
        rows = [line.split(",") for line in output]
        for column, values in zip(COLUMNS, zip(*rows, strict=False), strict=False):
            if numbers := [float(value) for value in values if value.strip().replace(".", "", 1).isdecimal()]:
                means[column] = statistics.mean(numbers)
