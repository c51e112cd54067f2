"""The `unifiedserve` command."""
