"""Read traces of production systems: when requests came and how large they were, a module for each layout of files."""
