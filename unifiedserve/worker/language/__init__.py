"""Run the language stages: encode, prefill and decode."""
