"""Show the engine at work: timeline, metrics, live events, frames."""
