"""Run nodes as actors of Ray.

Each keeps an engine or a router running; a controller keeps as many as there should be.
"""
