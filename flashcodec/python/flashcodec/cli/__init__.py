"""Run the `flashcodec` command: look into videos, sample them, compare decoders."""

import sys

_PACKAGES = ("PIL", "rich", "typer")


def main() -> None:
    """Run the command line. Exit codes: 0 ok, 1 the video could not be decoded, 2 wrong usage or set-up."""
    try:
        from flashcodec.cli.app import run

        sys.exit(run(sys.argv[1:]))
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        print(f"flashcodec: this needs {error.name}: pip install pillow rich typer", file=sys.stderr)
        sys.exit(2)
