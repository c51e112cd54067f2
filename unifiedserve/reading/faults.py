"""Tell clients of media that cannot be decoded."""

import flashcodec

_ADVICE = {
    "flashcodec.image decodes it": "send it as an image",
    "flashcodec.VideoDecoder decodes videos": "send it as a video",
}


def fault(name: str, error: Exception) -> str:
    """Return a line that says what is wrong with a medium. It has this name in its request.

    Names of sources and streams are left out, and advice to FlashCodec's users becomes advice to clients.
    """
    if not isinstance(error, flashcodec.DecodeError):
        return f"{name}: {error}"
    reason = error.reason
    for of_library, of_server in _ADVICE.items():
        reason = reason.replace(of_library, of_server)
    return f"{name}: {reason}"
