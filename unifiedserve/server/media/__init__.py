"""Media of requests: fetched from where they are, or kept after an upload."""
