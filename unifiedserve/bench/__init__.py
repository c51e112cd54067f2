"""Benchmark OpenAI-compatible servers: workloads, a client that sends them on time, metrics and reports."""
