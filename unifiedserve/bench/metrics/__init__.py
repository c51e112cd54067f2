"""Compute what a run's records tell, each figure by one pure function.

Symbols, units and sources are in docs/metrics.md.
"""
