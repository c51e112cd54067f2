"""Route requests: an HTTP server sends each to the node where its answer begins first."""
