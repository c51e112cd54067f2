"""Decode Base64 as people make it: with line breaks, without padding, in either alphabet."""

import base64

_PIECE = 1 << 20  # characters
_LETTERS = str.maketrans("-_", "+/")
_END = "= \t\r\n\f\v"


def decoded_bytes(text: str, most: int) -> bytes:
    """Return the bytes of base64; raise ValueError if it is none.

    Stops soon after `most` bytes. Decodes in pieces, so that other threads get their turns.
    """
    data, rest = bytearray(), ""
    end = len(text.rstrip(_END))
    for start in range(0, end, _PIECE):
        letters = rest + "".join(text[start : min(start + _PIECE, end)].split()).translate(_LETTERS)
        if "=" in letters:
            raise ValueError("padding within the data")
        whole = len(letters) // 4 * 4
        data += base64.b64decode(letters[:whole], validate=True)
        rest = letters[whole:]
        if len(data) > most:
            return bytes(data)
    if len(rest) == 1:
        raise ValueError("a letter is left over: the data may have been cut off")
    return bytes(data + base64.b64decode(rest + "=" * (-len(rest) % 4), validate=True))
