"""One module a model family: its prompts and media (a Processor), and its modules (a LanguageAdapter)."""
