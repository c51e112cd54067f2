"""What sends requests to any OpenAI-compatible chat endpoint, on time, and notes when each token comes."""
