"""Write the files of a plan: the placement for `serve`, all of it as JSON, and a picture."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from unifiedserve.bench.report.files import replace_file
from unifiedserve.errors import ConfigError
from unifiedserve.placement.parts import Part, split_parts
from unifiedserve.planning.drawing import draw
from unifiedserve.planning.explanation import limit
from unifiedserve.planning.plan import Choice, Plan
from unifiedserve.profiles import is_writable

PLACEMENT = "placement.toml"


def check_folder(folder: Path) -> None:
    """Raise ConfigError if `write` could not write there."""
    if not is_writable(folder):
        raise ConfigError(f"{folder}: the plan cannot be written here: give another folder with --out")


def write(plan: Plan, folder: Path) -> list[Path]:
    """Write the files of a plan that has a best placement; return their paths. Raises ConfigError."""
    placement, everything, picture = folder / PLACEMENT, folder / "plan.json", folder / "plan.svg"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(placement, placement_file(plan.choices[0]).encode())
        replace_file(everything, msgspec.json.format(msgspec.json.encode(plan)))
        draw(plan, picture)
    except OSError as error:
        raise ConfigError(f"{folder}: the plan cannot be written: {error.strerror or error}") from error
    return [placement, everything, picture]


def placement_file(choice: Choice) -> str:
    """Return a placement as a file for `serve --placement`."""
    parts = msgspec.toml.encode({"instance": [_given(part) for part in split_parts(choice.placement)]}).decode()
    return f"# {choice.label}: {limit(choice)}\n{parts}"


def command(choice: Choice, model: str, placement: Path) -> str:
    """Return the command that serves with a placement's file."""
    return " ".join(
        [
            "unifiedserve serve",
            *([shlex.quote(model)] if model else []),
            f"--placement {shlex.quote(str(placement))}",
            *flags(choice.options),
        ]
    )


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return options as they are written on a command line."""
    return [
        f"--{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f"--{name.replace('_', '-')} {value}"
        for name, value in options.items()
    ]


def _given(part: Part) -> dict[str, Any]:
    return {
        name: value
        for name in ("stages", "count", "cores", "memory", "gpu")
        if (value := getattr(part, name)) != next(f.default for f in msgspec.structs.fields(Part) if f.name == name)
    }
