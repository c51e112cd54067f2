"""Make answers as all endpoints share them: parsed from tokens, counted, sent whole or in events."""
