"""What one step of each stage does to a batch."""
