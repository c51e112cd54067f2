"""Measure a server's stages, over HTTP and by its own timeline: what a profile of this hardware is made of."""
