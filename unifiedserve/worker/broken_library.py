"""Recognise errors after which a library in this process keeps failing."""

_ONEDNN = "could not "  # all errors of oneDNN begin so: "could not create a primitive", "could not execute a primitive"


def breaks_library(error: Exception) -> bool:
    """Tell whether an error is oneDNN's.

    Once it could not make a primitive for want of memory it fails for that shape, or for all new ones, until the
    process ends, even if there is memory again.
    """
    return isinstance(error, RuntimeError) and str(error).startswith(_ONEDNN)
