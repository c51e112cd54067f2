"""Run the `unifiedserve` command."""
