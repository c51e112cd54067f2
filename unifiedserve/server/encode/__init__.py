"""Serve POST /v1/encode, of nodes that encode for others."""
