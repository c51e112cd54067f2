"""LangChain: vectors of texts, not of the token ids of OpenAI's models, which it sends unless told otherwise."""

import sys

from langchain_openai import OpenAIEmbeddings
from pydantic import SecretStr

url, model = sys.argv[1:3]
embeddings = OpenAIEmbeddings(
    base_url=url, api_key=SecretStr("none"), model=model, check_embedding_ctx_length=False, max_retries=0
)
assert embeddings.embed_documents(["a", "b"])[0][:2] == embeddings.embed_query("a")[:2]
