"""What one item of a part is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """A process that finds something out.

    `target` is "module:function", called with `Figures` to fill and then `arguments`; `limit` is in seconds; `needs`
    are names of conditions (needs.py), looked at just before it starts.
    """

    name: str
    target: str
    meaning: str
    limit: float = 60.0
    needs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
