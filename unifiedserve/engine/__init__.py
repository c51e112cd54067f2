"""Requests from arrival to end, and the workers that serve them."""
