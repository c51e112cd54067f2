"""Serve POST /tokenize and /detokenize."""
