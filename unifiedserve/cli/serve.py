"""Define `unifiedserve serve`. A server's start imports no other command."""

import sys
from typing import Any

from unifiedserve.cli.command_line import complain, new_app, run
from unifiedserve.cli.grouped_help import GroupedHelp
from unifiedserve.cli.leaving import leave
from unifiedserve.cli.options import from_options, signature_of
from unifiedserve.config import EngineConfig
from unifiedserve.heap import without_collections
from unifiedserve.kept_texts import end_keeping
from unifiedserve.observe.logs import log_of_server
from unifiedserve.observe.start import StartReport, begin_step
from unifiedserve.server.listener import bind

_LOST = 1  # a new start may help


def serve(**options: Any) -> None:
    """Serve a model over HTTP until Ctrl-C or SIGTERM.

    \b
    Serve the bundled model at http://127.0.0.1:8000:
      unifiedserve serve
    Serve a checkpoint from the Hugging Face hub:
      unifiedserve serve Qwen/Qwen2.5-VL-3B-Instruct --port 9000
    Allow URLs like file:///videos/holiday.mp4 in requests:
      unifiedserve serve ./checkpoint --allowed-local-media-path /videos
    Write a timeline that ui.perfetto.dev shows:
      unifiedserve serve --trace trace.json
    """
    config = from_options(EngineConfig, options)
    log_of_server(config.server.log_format, access_log=config.server.access_log)
    told = sys.stderr if config.server.log_format == "text" else None
    with bind(config.server.host, config.server.port) as listener, StartReport(told) as report:

        def announce(model_name: str, url: str) -> None:
            begin_step("ready")
            report.end()
            end_keeping()
            print(f"Serving {model_name} at {url}", flush=True)

        begin_step("loading the program")
        from unifiedserve.engine.zygote import shared_zygote

        shared_zygote()  # its imports go on beside ours
        with without_collections():
            from unifiedserve.models.deferred_torch import defer_torch

            defer_torch()
            import uvloop

            from unifiedserve.server import daemon

        lost = uvloop.run(daemon.serve(config, listener, announce))
    if lost:
        complain(f"the server ends: {lost}")
    leave(_LOST if lost else 0)


serve.__signature__ = signature_of(EngineConfig, positional={"model"})  # type: ignore[attr-defined]


def main() -> None:
    """Run a command line that serves."""
    app = new_app()
    app.callback()(lambda: None)  # else `serve` would be no command's name
    app.command(cls=GroupedHelp)(serve)
    run(app)
