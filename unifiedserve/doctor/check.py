"""Define one line of the report, and the words for its status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """Hold a line of the report: what was looked at, what was found, and what to do about it.

    `required` marks what the CPU path cannot do without: a missing one makes the doctor's exit code 1.
    `details` holds JSON values for machines; the table leaves them out.
    """

    name: str
    value: str
    status: Status = Status.OK
    remedy: str = ""
    required: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def blocks(self) -> bool:
        return self.required and self.status is Status.MISSING


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: '2.13.0+cpu' → (2, 13, 0)."""
    numbers: list[int] = []
    for part in text.split("+")[0].split("."):
        digits = "".join(character for character in part if character.isdigit())
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def gibibytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
