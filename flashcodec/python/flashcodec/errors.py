"""The one exception for media that cannot be decoded."""


class DecodeError(RuntimeError):
    """A source that cannot be read or decoded.

    Attributes:
        source: name of the source.
        stream: index of the stream, None if none had been chosen yet.
        reason: what is wrong with it.
    """

    def __init__(self, source: str, stream: int | None, reason: str) -> None:
        where = source if stream is None else f"{source}: stream {stream}"
        super().__init__(f"{where}: {reason}")
        self.source = source
        self.stream = stream
        self.reason = reason

    def __reduce__(self) -> tuple[type["DecodeError"], tuple[str, int | None, str]]:
        return type(self), (self.source, self.stream, self.reason)
