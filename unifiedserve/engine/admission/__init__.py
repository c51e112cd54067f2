"""From what a client sent to a request that the engine can surely serve, or a clear refusal."""
