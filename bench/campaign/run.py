"""Some ten thousand hostile requests, media and checkpoints, beside token streams that must not notice.

python bench/campaign/run.py [--count 10000] [--seed 1] [--only PART] [--quick] [--case PART:INDEX]

Starts a daemon with the bundled model on a free port of loopback, and nothing leaves the machine. The report goes to
bench/results/campaign: all.json and .md, or files named by the parts. The exit code is 1 if something was found, with
the case that shows it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from bench.campaign.command import main

    sys.exit(main())
