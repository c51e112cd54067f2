"""Run the vision stage: media to patches."""
