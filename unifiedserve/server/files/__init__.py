"""POST /v1/files and DELETE /v1/files/{id}."""
