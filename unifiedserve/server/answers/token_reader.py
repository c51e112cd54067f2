"""Read the tokens of one text in order: the bytes of each, and the character where it begins."""

import codecs

from unifiedserve.models.token_bytes import TokenBytes, TokenPiece


class TokenReader:
    """Read a prompt that an answer repeats, of the text `echo`.

    Else it reads an answer, of which the text is not known. Bytes of special tokens count where the prompt has them as
    text; an answer leaves them out.
    """

    def __init__(self, tokens: TokenBytes, echo: str = "", begin: int = 0) -> None:
        self._tokens = tokens
        self._echo = echo
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._first = True
        self.offset = begin

    def at(self, token: int) -> TokenPiece:
        """Return what a token is, or would be, next."""
        piece = self._tokens[token]
        if piece.special:
            return piece if self._comes(piece.text) else piece._replace(bytes=b"")
        stripped = self._first and piece.bytes.startswith(b" ") and self._strips
        return TokenPiece(piece.text[1:], piece.bytes[1:], False) if stripped else piece

    def read(self, token: int) -> tuple[TokenPiece, int]:
        """Go on by a token; return what it is, and at which character it begins."""
        piece, begin = self.at(token), self.offset
        self._first = self._first and piece.special and not piece.bytes
        self.offset += len(self._decoder.decode(piece.bytes))
        return piece, begin

    @property
    def _strips(self) -> bool:
        return self._tokens.strips_first or (self._echo != "" and not self._comes(" "))

    def _comes(self, text: str) -> bool:
        return self._echo.startswith(text, self.offset)
