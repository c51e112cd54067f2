"""Synthesise requests by distributions.

Texts have a given length, images and videos are rendered here; sessions and mixtures are made.
"""
