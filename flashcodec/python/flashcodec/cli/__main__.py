"""Run `python -m flashcodec.cli`, where the `flashcodec` script is not on the path."""

from flashcodec.cli import main

main()
