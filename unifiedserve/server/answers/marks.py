"""Mark a stream of events with the tokens that its reader has by then.

A mark is a comment of server-sent events, which clients pass over. A router asks for them: with these tokens another
server goes on with the answer (`resume`).
"""

from starlette.requests import Request

from unifiedserve.messages.api import Delta

HEADER = "x-token-marks"
BEGUN = "x-begun-id"  # by a router, with `resume`: the id that the answer's reader has seen


def wants_marks(request: Request) -> bool:
    """Tell whether the caller wants marks."""
    return request.headers.get(HEADER) == "1"


def mark(delta: Delta | None = None) -> bytes:
    """Return the mark behind a delta's events, with its answer's number and tokens; without one behind the opening."""
    return b":\n\n" if delta is None else f":{delta.index} {','.join(map(str, delta.token_ids))}\n\n".encode()


def read_mark(block: bytes | bytearray) -> tuple[int, list[int]] | None:
    """Return the number and the tokens of a mark's answer, None of an opening. Raises ValueError if it is no mark."""
    if not block.startswith(b":"):
        raise ValueError("no mark")
    index, _, tokens = block[1:].strip().partition(b" ")
    return (int(index), [int(token) for token in tokens.split(b",") if token]) if index else None
