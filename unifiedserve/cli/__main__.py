"""Run the `unifiedserve` command, and `python -m unifiedserve.cli`.

It imports the standard library only, until it runs. A server's workers begin with their imports before it does.
"""

import sys
from contextlib import suppress
from importlib import import_module

from unifiedserve.engine.zygote_process import start_early
from unifiedserve.environment import spare_threads
from unifiedserve.kept_texts import begin_keeping

_BAD_SETUP = 2
# What `pip install "unifiedserve[serve]"` brings, as it is imported
_SERVE = frozenset(
    {
        "PIL",
        "anyio",
        "cachetools",
        "gguf",
        "greenlet",
        "httpx",
        "jinja2",
        "llguidance",
        "msgspec",
        "prometheus_client",
        "psutil",
        "python_multipart",
        "rich",
        "safetensors",
        "simplejpeg",
        "starlette",
        "tokenizers",
        "tomli_w",
        "torch",
        "transformers",
        "typer",
        "uvicorn",
        "uvloop",
    }
)
_EXTRAS = {"ray": "serve,cluster"}


def main() -> None:
    """Run the command line; a package that an extra would bring is named in one line on stderr, with exit code 2."""
    serves = sys.argv[1:2] == ["serve"]
    if serves and "--help" not in sys.argv:
        with suppress(OSError):  # it is started again when it is wanted
            start_early()
        begin_keeping("server")
    spare_threads()
    try:
        import_module(f"unifiedserve.cli.{'serve' if serves else 'app'}").main()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extra = "serve" if missing in _SERVE else _EXTRAS.get(missing)
        if extra is None:
            raise
        print(f'unifiedserve: {missing} is not installed: pip install "unifiedserve[{extra}]"', file=sys.stderr)
        sys.exit(_BAD_SETUP)


if __name__ == "__main__":
    main()
