"""Run a command line: the program's settings, and mistakes told in a line."""

import asyncio
import sys

import typer

from unifiedserve.errors import ConfigError

_BAD_USAGE = 2


def new_app() -> typer.Typer:
    """Return the program without commands."""
    return typer.Typer(
        help="Serve image and video language models over an OpenAI-compatible HTTP API.",
        epilog="Start with: unifiedserve doctor, unifiedserve demo, unifiedserve serve.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def run(app: typer.Typer) -> None:
    """Run the command line; a mistake in it or in the set-up is one line on stderr and exit code 2."""
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="unifiedserve", standalone_mode=False))
    except typer.TyperException as error:
        _fail(error.format_message())
    except ConfigError as error:
        _fail(str(error))
    except (KeyboardInterrupt, asyncio.CancelledError, typer.Abort):
        sys.exit(130)


def complain(message: str) -> None:
    """Write a message to stderr, as one line."""
    line = " ".join(message.split())
    print(f"unifiedserve: {line}", file=sys.stderr)


def _fail(message: str) -> None:
    complain(message)
    sys.exit(_BAD_USAGE)
