"""The help of `unifiedserve bench`: complete, with examples, and at once."""

import re
import subprocess
import sys

import msgspec
import pytest
from typer.testing import CliRunner

from unifiedserve.bench.options import GoodputOptions, RunOptions, SloOptions
from unifiedserve.cli.app import app

HEAVY = ("torch", "transformers", "matplotlib", "numpy", "httpx")


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize(
    ("command", "options"), [("run", RunOptions), ("goodput", GoodputOptions), ("compare", SloOptions)]
)
def test_help_has_every_option_and_an_example(command: str, options: type[msgspec.Struct]) -> None:
    text = shown(command, "--help")
    for field in msgspec.structs.fields(options):
        assert re.search(rf"^  --{field.name.replace('_', '-')}( |$)", text, re.MULTILINE), field.name
    assert "unifiedserve bench" in text


def test_options_without_a_command_are_those_of_run() -> None:
    assert shown("--requests", "3", "--help") == shown("run", "--help")


def test_help_needs_no_heavy_imports() -> None:
    program = "import sys, unifiedserve.cli.bench; print([name for name in sys.argv[1:] if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", program, *HEAVY], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
