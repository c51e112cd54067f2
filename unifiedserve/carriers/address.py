"""Write addresses of carriers as text, such as KIND://WHERE?NAME=VALUE&… for some options."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode


class Address(NamedTuple):
    """Hold an address in its parts."""

    kind: str
    where: str
    facts: Mapping[str, str]

    def text(self) -> str:
        """Return it as one line."""
        return f"{self.kind}://{self.where}?{urlencode(self.facts)}"


class AddressError(Exception):
    """Signal an address that cannot be read from. One line says why."""


def parse(text: str, kind: str) -> Address:
    """Return the parts of an address of a kind; raises AddressError for another one."""
    named, _, rest = text.partition("://")
    where, _, query = rest.partition("?")
    try:
        address = Address(named, where, dict(parse_qsl(query, strict_parsing=True)))
    except ValueError:
        raise AddressError(f"{text[:80]!r} is no address of a carrier") from None
    if address.kind != kind:
        raise AddressError(f"{text[:80]!r} is no address of a carrier {kind!r}; both sides need the same kind")
    return address


def check_description(theirs: str, ours: str) -> None:
    """Raise AddressError unless both sides mean the same by their pages."""
    if theirs != ours:
        raise AddressError(f"the source serves {theirs!r}, which is not the {ours!r} of this side")
