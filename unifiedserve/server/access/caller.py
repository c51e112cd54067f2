"""Identify the sender of a request."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.types import Scope

_PLACE = "unifiedserve.caller"


class Caller(NamedTuple):
    """Name the sender of a request: its key, or its address where no keys are set (`keyed` false)."""

    name: str
    keyed: bool = False

    def private(self, name: str) -> str:
        """Return a name that no caller with another key can give."""
        return f"{self.name}/{name}" if self.keyed else name


NOBODY = Caller("")


def caller_of(request: Request) -> Caller:
    """Return whose request it is."""
    caller: Caller = request.scope.get(_PLACE) or address_of(request.scope)
    return caller


def address_of(scope: Scope) -> Caller:
    """Return the caller as its address."""
    client = scope.get("client")
    return Caller(client[0] if client else "")


def note_caller(scope: Scope, caller: Caller) -> None:
    """Keep whose request it is."""
    scope[_PLACE] = caller
