"""What goes wrong: with media DecodeError and its kinds, with arguments what TorchCodec raises as well."""


class DecodeError(RuntimeError):
    """A source that cannot be read or decoded. What is raised is one of the subclasses.

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
    """The source cannot be opened or read, or is no media file at all."""


class UnsupportedError(DecodeError):
    """There is nothing in it that can be decoded here: no video stream, an encrypted one, an unknown codec."""


class NoVideoError(UnsupportedError, ValueError):
    """There is no video in it, or no container that is read; a ValueError as well, because TorchCodec raises that."""


class DamagedError(DecodeError):
    """Frames do not come out, or not as they were encoded."""


class LimitError(DecodeError):
    """It goes over one of the `Limits`."""


class ArgumentError(ValueError, RuntimeError):
    """A value that makes no sense, where TorchCodec raises a RuntimeError."""


class OutOfRangeError(IndexError, RuntimeError):
    """Times before the first frame or after the last, where TorchCodec raises a RuntimeError."""


class ArgumentTypeError(TypeError, RuntimeError):
    """A value of the wrong type, where TorchCodec raises a RuntimeError."""
