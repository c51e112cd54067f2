"""Bring requests from arrival to end, and run the workers that serve them."""
