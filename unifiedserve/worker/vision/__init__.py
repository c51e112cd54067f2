"""The vision stage: media to patches."""
