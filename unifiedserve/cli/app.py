"""The `unifiedserve` command. Nothing heavy is imported before a command needs it: help must be instant."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from unifiedserve import __version__
from unifiedserve.cli.bench import bench
from unifiedserve.cli.leaving import leave
from unifiedserve.cli.options import from_options, signature_of
from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.observe.logs import log_of_server
from unifiedserve.server.listener import bind

_LOST = 1  # a new start may help
_BAD_USAGE = 2

app = typer.Typer(
    help="Serve image and video language models over an OpenAI-compatible HTTP API.",
    epilog="Start with: unifiedserve doctor, then unifiedserve demo, then unifiedserve serve.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def serve(**options: Any) -> None:
    """Serve a model until Ctrl-C or SIGTERM.

    \b
    The bundled model at http://127.0.0.1:8000:
      unifiedserve serve
    A checkpoint of the hub:
      unifiedserve serve Qwen/Qwen2.5-VL-3B-Instruct --port 9000
    With file:///videos/... allowed in requests:
      unifiedserve serve ./checkpoint --allowed-local-media-path /videos
    With a timeline for ui.perfetto.dev:
      unifiedserve serve --trace trace.json
    """
    config = from_options(EngineConfig, options)
    log_of_server(config.log_format, access_log=config.access_log)
    with bind(config.host, config.port) as listener:
        from unifiedserve.engine.zygote import shared_zygote

        shared_zygote()  # first, so that its imports go on beside ours
        from unifiedserve.server import daemon

        lost = asyncio.run(daemon.serve(config, listener, _announce))
    if lost:
        _complain(f"the server ends: {lost}")
    leave(_LOST if lost else 0)


def _announce(model_name: str, url: str) -> None:
    print(f"Serving {model_name} at {url}", flush=True)


serve.__signature__ = signature_of(EngineConfig, positional={"model"})  # type: ignore[attr-defined]
app.command()(serve)


@app.command()
def ask(
    medium: Annotated[Path, typer.Argument(help="A video or an image", show_default=False)],
    question: Annotated[str, typer.Argument(help="What to ask about it", show_default=False)],
    url: Annotated[str, typer.Option(help="A running daemon; empty: start one for this question")] = "",
    model: Annotated[str, typer.Option(help="As for serve, if a daemon is started")] = "",
    frames: Annotated[int | None, typer.Option(min=1, help="Of a video; default: as the model's rules say")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Length of the answer")] = 128,
) -> None:
    """Ask a question about a video or an image, and watch the stages at work.

    \b
    With a daemon of its own:
      unifiedserve ask holiday.mp4 "Who is in it?"
    With one that runs already:
      unifiedserve ask holiday.mp4 "Who is in it?" --url http://127.0.0.1:8000
    """
    if url and model:
        raise ConfigError("--url and --model exclude each other: a running daemon has its model")
    from unifiedserve.cli.ask import Question, run_all

    wanted = Question(text=question, medium=medium, frames=frames, max_tokens=max_tokens)
    raise typer.Exit(run_all([wanted], url=url, model=model))


@app.command()
def demo(
    model: Annotated[str, typer.Argument(help="As for serve", show_default=False)] = "",
    video: Annotated[Path | None, typer.Option(help="A video file; default: a tour of sample clips")] = None,
    question: Annotated[str, typer.Option(help="What to ask about it; default: to describe it")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Length of the answer")] = 64,
) -> None:
    """Ask questions about sample clips, or one about a video of yours, end to end.

    Starts the daemon, asks over HTTP, prints answers as they come and the timelines of the stages, stops the daemon.

    \b
    For example:
      unifiedserve demo --video holiday.mp4 --question "Who is in it?"
    """
    from unifiedserve.cli.demo import run

    raise typer.Exit(run(model, video, question, max_tokens))


@app.command()
def top(
    url: Annotated[str, typer.Option(help="The running daemon")] = "http://127.0.0.1:8000",
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between looks, which its figures are over")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the figures since the daemon's start, and end")] = False,
) -> None:
    """Watch a running daemon: stages, buffers, rates, latencies, caches, workers. Ctrl-C ends it.

    All of it is read from its /metrics, /health and /ready. Percentiles are as exact as the histograms there. Where the
    daemon has API keys, put one into UNIFIEDSERVE_API_KEY.

    \b
    The daemon of this machine:
      unifiedserve top
    Another one, each ten seconds:
      unifiedserve top --url https://gpu-3:8000 --interval 10
    For a script, or a report of a fault:
      unifiedserve top --once > state.txt
    """
    from unifiedserve.cli.top import run

    raise typer.Exit(run(url, interval, once))


@app.command()
def doctor(json: Annotated[bool, typer.Option("--json", help="As JSON instead of a table")] = False) -> None:
    """Show what this machine offers for serving.

    For all that is missing it says what to do about it. The exit code is 0 if serving would work.
    """
    from unifiedserve.doctor import main

    raise typer.Exit(main(json=json))


app.add_typer(bench)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Run the command line; a mistake in it or in the set-up is one line on stderr and exit code 2."""
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="unifiedserve", standalone_mode=False))
    except typer.TyperException as error:
        _fail(error.format_message())
    except ConfigError as error:
        _fail(str(error))
    except (KeyboardInterrupt, asyncio.CancelledError, typer.Abort):
        sys.exit(130)


def _fail(message: str) -> None:
    _complain(message)
    sys.exit(_BAD_USAGE)


def _complain(message: str) -> None:
    line = " ".join(message.split())
    print(f"unifiedserve: {line}", file=sys.stderr)
