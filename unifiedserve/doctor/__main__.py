"""Run `python -m unifiedserve.doctor [--json]`, where nothing is installed yet."""

import argparse
import sys

from unifiedserve.doctor import main

parser = argparse.ArgumentParser(prog="unifiedserve doctor", description="Check whether this machine can serve models.")
parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
sys.exit(main(json=parser.parse_args().json))
