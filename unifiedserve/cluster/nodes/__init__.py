"""Nodes as actors of Ray: each keeps an engine or a router running; a controller keeps as many as there should be."""
