"""`python -m unifiedserve.doctor [--json]`, for machines where nothing is installed yet."""

import argparse
import sys

from unifiedserve.doctor import main

parser = argparse.ArgumentParser(prog="unifiedserve doctor", description="What this machine has and lacks.")
parser.add_argument("--json", action="store_true", help="machine-readable output")
sys.exit(main(json=parser.parse_args().json))
