"""What these tests share with the server's: an engine that follows a script, behind a real socket."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "server"))
