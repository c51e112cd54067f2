"""What computes on a device other than the processor."""
