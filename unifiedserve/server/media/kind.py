"""Tell whether a file is an image or a video, by its sender's word."""

import mimetypes

from unifiedserve.errors import RequestError
from unifiedserve.messages.media import MediaKind


def media_kind(media_type: str, name: str) -> MediaKind:
    """Return what a MIME type says, or else a file's name or URL; raise RequestError 400 if neither says it."""
    guessed, _ = mimetypes.guess_type(name)
    for known in (media_type, guessed or ""):
        match known.lower().partition("/")[0]:
            case "image" | "video" as kind:
                return kind
    raise RequestError(
        f"By its type ({media_type or guessed or 'unknown'}) the file is neither an image nor a video: if it is one, "
        "send it in a part for images or for videos.",
        code="unsupported_file",
    )
