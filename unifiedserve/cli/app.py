"""Define the `unifiedserve` command. Nothing heavy is imported before a command needs it: help must be instant."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from unifiedserve import __version__
from unifiedserve.cli.bench import bench
from unifiedserve.cli.cluster import cluster
from unifiedserve.cli.command_line import new_app, run
from unifiedserve.cli.grouped_help import GroupedHelp
from unifiedserve.cli.options import from_options, signature_of
from unifiedserve.cli.serve import serve
from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.planning.options import PlanOptions

app = new_app()
app.command(cls=GroupedHelp)(serve)


def placement(**options: Any) -> None:
    """Draw which workers a placement has, on which cores and with how much memory; start nothing.

    \b
    The default, for the bundled model:
      unifiedserve placement
    Two halves of the cores:
      unifiedserve placement ep-d
    Parts with cores of their own, v: vision, e: encode, p: prefill, d: decode:
      unifiedserve placement ep@0-3+d@4-5 --model Qwen/Qwen2.5-VL-3B-Instruct
    Two memories, each with the pages and weights that its workers need:
      unifiedserve placement ep@0-3,mem0+d@4-5,mem1
    From a file with [[instance]] tables, with stages = "ep", cores = "0-3" and a name:
      unifiedserve placement ours.toml
    """
    from rich.console import Console

    from unifiedserve.cli.placement import run

    run(from_options(EngineConfig, options), Console())


placement.__signature__ = signature_of(EngineConfig, positional={"placement"})  # type: ignore[attr-defined]
app.command(cls=GroupedHelp)(placement)


@app.command()
def profile(
    model: Annotated[
        str, typer.Option(help="The model: folder, hub id or .gguf file. Empty: the bundled one", show_default=False)
    ] = "",
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="The device to measure, as for serve")
    ] = "auto",
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option(help="The number type of the weights, as for serve")
    ] = "auto",
    quantization: Annotated[
        Literal["none", "int8", "int4"], typer.Option(help="How matrices are quantised, as for serve")
    ] = "none",
    vision_quantization: Annotated[
        Literal["none", "int8"], typer.Option(help="How the vision tower's are quantised, as for serve")
    ] = "none",
    image: Annotated[
        Path | None, typer.Option(help="An image like those that will come. Default: a sample of 480x480")
    ] = None,
    video: Annotated[
        Path | None, typer.Option(help="A video like those that will come. Default: a sample of 320x180, 10 s")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A TOML file to write the profile to, too")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure less: half a minute, and less exact")] = False,
    despite_load: Annotated[
        bool, typer.Option("--despite-load", help="Measure although other programs use the cores")
    ] = False,
) -> None:
    """Measure what each stage costs here, and how much the stages slow each other down.

    Takes some minutes. The profile is kept in the user's cache, where plan finds it to choose a placement.

    \b
    Measure the bundled model:
      unifiedserve profile
    Measure a checkpoint with a video like those of its users, and keep a file:
      unifiedserve profile --model ./checkpoint --video meeting.mp4 --out ours.toml
    """
    from rich.console import Console

    from unifiedserve.cli.profile import Wishes, run

    options = {
        "model": model,
        "device": device,
        "dtype": dtype,
        "quantization": quantization,
        "vision_quantization": vision_quantization,
    }
    run(EngineConfig.of(**options), Wishes(image, video, out, quick, despite_load), Console())


@app.command()
def calibrate(
    model: Annotated[
        str,
        typer.Argument(help="The model: folder or hub id of a checkpoint that is not quantised", show_default=False),
    ],
    text: Annotated[
        Path, typer.Argument(help="A text file like what the model will read and write", show_default=False)
    ],
    tokens: Annotated[int, typer.Option(min=512, help="How many tokens of the text are read at most")] = 16384,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option(help="The number type to compute with, as for serve")
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option(help="The file to write. Default: the model's name and .imatrix.gguf")
    ] = None,
) -> None:
    """Measure which inputs of a model's matrices matter most, for serve --quantization int4 --importance.

    Runs the model over a text by the CPU. The file is an importance matrix as llama.cpp writes them, too.

    \b
    Write checkpoint.imatrix.gguf, and serve with it:
      unifiedserve calibrate ./checkpoint notes.txt
      unifiedserve serve ./checkpoint --quantization int4 --importance checkpoint.imatrix.gguf
    """
    from rich.console import Console

    from unifiedserve.cli.calibrate import run

    run(model, text, tokens, dtype, output, Console())


@app.command()
def router(
    nodes: Annotated[
        str, typer.Option(help="URLs of nodes, with commas between them; -: members come on standard input, as JSON")
    ],
    host: Annotated[str, typer.Option(help="The address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free one")] = 8000,
    policy: Annotated[
        Literal["cost", "least-requests", "round-robin", "random"],
        typer.Option(
            help="The choice of the node that takes a request. cost: the one that brings its first token soonest"
        ),
    ] = "cost",
    drain_timeout: Annotated[float, typer.Option(min=0, help="Seconds for answers to end after SIGTERM")] = 30.0,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            help="A host name that requests may address the router by. May be repeated. Default: only its own names "
            "if it listens on loopback, else any name"
        ),
    ] = None,
    cors_origins: Annotated[
        list[str] | None,
        typer.Option(
            help="An origin whose web pages may call the API from a browser, such as https://example.com. May be "
            "repeated. Default: none"
        ),
    ] = None,
) -> None:
    """Send requests to several servers of one model or more, until Ctrl-C or SIGTERM.

    Where a server is lost another one goes on with its answers. cluster up starts routers by itself.

    \b
    Two servers behind http://127.0.0.1:8000:
      unifiedserve serve --port 8001 & unifiedserve serve --port 8002 &
      unifiedserve router --nodes http://127.0.0.1:8001,http://127.0.0.1:8002
    """
    from unifiedserve.cli.router import run

    run(nodes, host, port, policy, drain_timeout, allowed_hosts or (), cors_origins or ())


@app.command()
def ask(
    medium: Annotated[Path, typer.Argument(help="The file of a video or an image", show_default=False)],
    question: Annotated[str, typer.Argument(help="The question about it", show_default=False)],
    url: Annotated[str, typer.Option(help="The URL of a running server. Empty: start one for this question")] = "",
    model: Annotated[
        str,
        typer.Option(help="The model of the server that is started: as of serve. Empty: the bundled one"),
    ] = "",
    frames: Annotated[
        int | None,
        typer.Option(min=1, help="Frames to sample from the video. Default: as many as the model's own rules give"),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens")] = 128,
) -> None:
    """Ask about a video or an image, and watch the stages at work.

    \b
    Start a server for this question:
      unifiedserve ask holiday.mp4 "Who is in it?"
    Ask a server that is running:
      unifiedserve ask holiday.mp4 "Who is in it?" --url http://127.0.0.1:8000
    """
    if url and model:
        raise ConfigError("--url and --model exclude each other: a running server has its model already")
    from unifiedserve.cli.ask import Question, run_all

    wanted = Question(text=question, medium=medium, frames=frames, max_tokens=max_tokens)
    raise typer.Exit(run_all([wanted], url=url, model=model))


@app.command()
def demo(
    model: Annotated[
        str, typer.Argument(help="The model: folder, hub id or .gguf file. Empty: the bundled one", show_default=False)
    ] = "",
    video: Annotated[
        Path | None, typer.Option(help="A video file to ask about. Default: sample clips, one after another")
    ] = None,
    question: Annotated[str, typer.Option(help="The question about --video. Empty: to describe it")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens")] = 64,
) -> None:
    """Ask questions about sample clips, or about your own video.

    Starts a server, asks it over HTTP, prints the answers and the timelines of the stages, and stops the server.

    \b
    Ask about your own video:
      unifiedserve demo --video holiday.mp4 --question "Who is in it?"
    """
    from unifiedserve.cli.demo import run

    raise typer.Exit(run(model, video, question, max_tokens))


@app.command()
def top(
    url: Annotated[str, typer.Option(help="The URL of the running server")] = "http://127.0.0.1:8000",
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two updates; rates are averages over this time")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print the figures since the server's start once, and exit")
    ] = False,
) -> None:
    """Watch a running server at work, until Ctrl-C.

    Shows stages, buffers, rates, latencies, caches and workers, read from /metrics, /health and /ready: percentiles are
    as exact as the histograms there. If the server needs an API key, set UNIFIEDSERVE_API_KEY.

    \b
    Watch the server on this machine:
      unifiedserve top
    Watch another one, with updates every ten seconds:
      unifiedserve top --url https://gpu-3:8000 --interval 10
    Keep the state for a script or a bug report:
      unifiedserve top --once > state.txt
    """
    from unifiedserve.cli.top import run

    raise typer.Exit(run(url, interval, once))


@app.command()
def doctor(json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False) -> None:
    """Check whether this machine can serve models.

    Each missing part comes with a remedy. The exit code is 0 if serving works, else 1.
    """
    from unifiedserve.doctor import main

    raise typer.Exit(main(json=json))


def plan(**options: Any) -> None:
    """Find the best placement for a workload: which stages share which devices, and how large their steps are.

    Simulates the schedulers that serve, over costs that unifiedserve profile has measured. The exit code is 1 if
    nothing meets the targets.

    \b
    For this machine and the bundled model, whose profile was measured before:
      unifiedserve plan --slo-ttft 2 --slo-tbt 0.2
    For eight GPUs that are not here, from a profile that was written by hand, and a production trace:
      unifiedserve plan --profile a100.toml --devices 8 --trace azure.csv --slo-ttft 2 --slo-tbt 0.1
    Serve with what was found:
      unifiedserve serve --placement plan/placement.toml
    """
    asked = from_options(PlanOptions, options)
    from unifiedserve.cli.plan import run

    raise typer.Exit(run(asked))


plan.__signature__ = signature_of(PlanOptions)  # type: ignore[attr-defined]
app.command()(plan)


@app.command()
def replay(
    folder: Annotated[Path, typer.Argument(help="The folder that serve --record was given", show_default=False)],
) -> None:
    """Let the schedulers decide again what a server has recorded, and compare.

    The exit code is 0 if all decisions are alike, bit by bit, else 1.

    \b
    Record a server, stop it, and see whether its schedulers decide the same again:
      unifiedserve serve --record turns
      unifiedserve replay turns
    """
    from unifiedserve.cli.replay import run

    raise typer.Exit(run(folder))


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove the weights; the next start makes them again")] = False,
) -> None:
    """Show what is kept in the user's cache folder: weights as kernels read them, profiles, tables.

    \b
    Give the disk back what kept weights take:
      unifiedserve cache --clear
    """
    from rich.console import Console

    from unifiedserve.cli.cache import run

    try:
        run(Console(), clear=clear)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error


app.add_typer(bench)
app.add_typer(cluster)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Run the command line."""
    run(app)
