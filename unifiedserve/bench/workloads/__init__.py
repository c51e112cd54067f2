"""Synthetic requests by distributions: texts of a given length, images and videos rendered here, sessions, mixtures."""
