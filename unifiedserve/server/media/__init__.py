"""Fetch media of requests from where they are, or keep them after an upload."""
