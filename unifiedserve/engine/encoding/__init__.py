"""Encode one node's media at another: the side that asks, and the side that encodes."""
