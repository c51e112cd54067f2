"""Messages are read where torch is not: by clients and routers."""

import subprocess
import sys


def test_what_travels_knows_no_torch() -> None:
    code = "import sys, unifiedserve.messages.api, unifiedserve.messages.wire; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
