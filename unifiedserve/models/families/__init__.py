"""Adapt one model family a module: its prompts and media (a Processor), and its modules (a LanguageAdapter)."""
