"""The router: an HTTP server that sends each request to the node where its answer begins first."""
