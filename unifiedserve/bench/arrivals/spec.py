"""Parse the small language of options such as gamma:2.5,cv=4: a name, a value, and further values by name."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from unifiedserve.errors import ConfigError


@dataclass(frozen=True)
class Spec:
    """Hold a parsed text: `gamma:2.5,cv=4` is Spec(…, "gamma", "2.5", {"cv": "4"})."""

    text: str
    name: str
    value: str
    options: dict[str, str]

    def number(self, key: str = "", default: float | None = None, *, positive: bool = True) -> float:
        """Return an option, or the value if `key` is empty, as a finite number. It is above zero if `positive`.

        Raises ConfigError if it is none, or missing without a default.
        """
        text = self.options.get(key, "") if key else self.value
        if not text and default is not None:
            return default
        what = key or "the value"
        if not text:
            raise ConfigError(f"{self.text}: {what} is missing, as in {self.name}:{f'{key}=1' if key else '1'}")
        return finite(f"{self.text}: {what}", text, positive=positive)

    def whole(self, key: str = "", default: int | None = None) -> int:
        """Return likewise a whole number above zero."""
        number = self.number(key, default)
        if number != int(number):
            raise ConfigError(f"{self.text}: {key or 'the number'} must be whole, not {number:g}")
        return int(number)

    def allow(self, keys: Iterable[str]) -> None:
        """Raise ConfigError if there is an option of another name."""
        known = list(keys)
        for key in self.options:
            if key not in known:
                raise ConfigError(
                    f"{self.text}: {self.name} has no {key!r}, but {', '.join(known) or 'only one number'}"
                )


def split(text: str) -> Spec:
    """Split name:value,key=value,…; the value may be left out. Raises ConfigError if a text has another form."""
    name, _, rest = text.partition(":")
    pieces = [piece.strip() for piece in rest.split(",") if piece.strip()]
    value = pieces.pop(0) if pieces and "=" not in pieces[0] else ""
    return Spec(text, name.strip().lower(), value, pairs(text, pieces))


def pairs(text: str, pieces: Iterable[str]) -> dict[str, str]:
    """Return key=value pieces of `text` as a dictionary. Raises ConfigError if one has another form or comes twice."""
    options: dict[str, str] = {}
    for piece in pieces:
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not (key and equals and value):
            raise ConfigError(f"{text}: {piece!r} is not of the form key=value")
        if key in options:
            raise ConfigError(f"{text}: {key} is given twice")
        options[key] = value
    return options


def finite(what: str, text: str, *, positive: bool = False) -> float:
    """Return a text as a number. Raises ConfigError, which begins with `what`, if it is none, infinite or negative."""
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number, not {text!r}") from None
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        raise ConfigError(f"{what} must be {'above zero' if positive else 'zero or more'} and finite, not {text}")
    return number
