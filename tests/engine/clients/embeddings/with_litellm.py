"""LiteLLM: vectors by its providers `openai` and `hosted_vllm`."""

import sys

import litellm

url, model = sys.argv[1:3]
for provider in ("openai", "hosted_vllm"):
    made = litellm.embedding(model=f"{provider}/{model}", input=["a", "b"], api_base=url, api_key="none")
    assert len(made.data) == 2
