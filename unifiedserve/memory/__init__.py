"""View the shared buffers with types."""
