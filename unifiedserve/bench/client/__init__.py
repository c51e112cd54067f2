"""Send requests to any OpenAI-compatible chat endpoint on time, and note each token's time."""
