"""LlamaIndex: vectors of texts and of a question."""

import sys

from llama_index.embeddings.openai_like import OpenAILikeEmbedding

url, model = sys.argv[1:3]
embeddings = OpenAILikeEmbedding(model_name=model, api_base=url, api_key="none", max_retries=0)
assert embeddings.get_text_embedding_batch(["a", "b"])[0][:2] == embeddings.get_query_embedding("a")[:2]
