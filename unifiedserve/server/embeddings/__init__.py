"""Serve POST /v1/embeddings."""
