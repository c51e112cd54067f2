"""Put the commands together, and print their errors."""

import io
import os
import sys
from collections.abc import Sequence

import typer

from flashcodec import _core
from flashcodec.cli.bench import bench
from flashcodec.cli.console import complain
from flashcodec.cli.doctor import doctor
from flashcodec.cli.plan import plan
from flashcodec.cli.probe import probe
from flashcodec.cli.sample import sample
from flashcodec.errors import DecodeError

_COULD_NOT_DECODE = 1
_BAD_USAGE = 2
_INTERRUPTED = 130

app = typer.Typer(
    help="Look into videos, sample their frames, compare decoders.",
    epilog="Start with: flashcodec doctor, then flashcodec probe FILE.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (probe, plan, sample, bench, doctor):
    app.command()(command)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Errors are one line on stderr."""
    _core.mute_ffmpeg()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text
    try:
        return int(app(arguments or ["--help"], prog_name="flashcodec", standalone_mode=False) or 0)
    except typer.TyperException as error:
        complain(error.format_message())
        return _BAD_USAGE
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DecodeError, OSError) as error:
        complain(str(error))
        return _COULD_NOT_DECODE
    except MemoryError:
        complain("out of memory: ask for fewer or smaller frames")
        return _COULD_NOT_DECODE
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
