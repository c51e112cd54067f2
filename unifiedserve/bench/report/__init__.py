"""Show runs: in the terminal, as files, and side by side."""
