"""What a run's records tell, each figure one pure function; symbols, units and sources are in docs/metrics.md."""
