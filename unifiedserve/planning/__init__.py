"""Chooses where stages run: candidates are simulated with the schedulers that serve, over the costs in a profile."""
