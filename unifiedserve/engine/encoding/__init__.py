"""Media that one node encodes for another: who asks, and who encodes."""
