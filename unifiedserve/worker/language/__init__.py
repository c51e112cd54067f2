"""The language stages: encode, prefill and decode."""
