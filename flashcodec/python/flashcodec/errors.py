"""Define errors: with media DecodeError and its kinds, with arguments what TorchCodec raises as well."""


class DecodeError(RuntimeError):
    """Signal a source that cannot be read or decoded.

    Subclasses of it are raised.

    Attributes:
        source: name of the source.
        stream: index of the stream, None if none had been chosen yet.
        reason: what is wrong with it.
        position: number of the frame concerned (DamagedError) or byte offset (SourceError), None if unknown.
    """

    def __init__(self, source: str, stream: int | None, reason: str, position: int | None = None) -> None:
        where = source if stream is None else f"{source}: stream {stream}"
        super().__init__(f"{where}: {reason}")
        self.source = source
        self.stream = stream
        self.reason = reason
        self.position = position

    def __reduce__(self) -> tuple[type["DecodeError"], tuple[str, int | None, str, int | None]]:
        return type(self), (self.source, self.stream, self.reason, self.position)


class SourceError(DecodeError):
    """Signal a source that cannot be opened or read, or is no media file."""


class UnsupportedError(DecodeError):
    """Signal that nothing in it can be decoded here: no video stream, an encrypted one, an unknown codec."""


class NoVideoError(UnsupportedError, ValueError):
    """Signal no video, or no container that is read. It is a ValueError as well, because TorchCodec raises that."""


class DamagedError(DecodeError):
    """Signal frames that do not come out, or not as they were encoded."""


class LimitError(DecodeError):
    """Signal a source that goes over one of the `Limits`."""


class ArgumentError(ValueError, RuntimeError):
    """Signal a value that makes no sense, where TorchCodec raises a RuntimeError."""


class OutOfRangeError(IndexError, RuntimeError):
    """Signal times before the first frame or after the last, where TorchCodec raises a RuntimeError."""


class ArgumentTypeError(TypeError, RuntimeError):
    """Signal a value of the wrong type, where TorchCodec raises a RuntimeError."""
