"""The `openai` package: vectors of texts and of token ids, as numbers and as base64."""

import sys

import openai

url, model = sys.argv[1:3]
client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
plain, packed = (
    client.embeddings.create(model=model, input=["a", "b"], encoding_format=way) for way in ("float", "base64")
)
assert len(plain.data) == len(packed.data) == 2
assert client.embeddings.create(model=model, input="a").data[0].embedding[:2] == plain.data[0].embedding[:2]
assert client.embeddings.create(model=model, input=[[5, 6]]).data[0].embedding
