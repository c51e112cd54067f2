"""Serve POST /v1/messages and /v1/messages/count_tokens: chats as Anthropic's clients write them."""
