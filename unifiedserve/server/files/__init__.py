"""Serve POST /v1/files, GET and DELETE /v1/files/{id}."""
