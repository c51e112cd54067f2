"""`python -m unifiedserve.cli`, the same as the command."""

from unifiedserve.cli.app import main

main()
