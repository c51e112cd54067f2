"""What can be seen of the engine: timeline, metrics, live events, frames."""
