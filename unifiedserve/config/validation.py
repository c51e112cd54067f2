"""Tell what is wrong with options, in the words of `msgspec`."""

import msgspec


def field_and_reason(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the field that an error is about, and the reason within a sentence."""
    reason, _, field = str(error).rpartition(" - at `$.")
    return field.rstrip("`"), reason[:1].lower() + reason[1:]
